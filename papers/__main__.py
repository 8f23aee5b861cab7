"""`python -m papers TABLE`: fill a table or figure of a paper with our numbers; train missing runs."""

import argparse
import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from common.errors import BadInput, NonFinite, ProjectError, run_command
from common.files import writing
from common.flags import Parser, output_folder
from common.streams import show
from eval.scores import write_rows
from eval.tasks import Task
from papers import specification
from papers.imported import read_imported, refuse_loss
from papers.listing import listing, overview
from papers.page import draw, page
from papers.plans import STAND_IN, Choice, RunPlan, plan_of
from papers.results import collect, is_imported
from papers.runs import CONFIGS, refuse_missing, search_tasks
from papers.specification import Table
from papers.tasks import needed

logger = logging.getLogger(__name__)


def parser() -> Parser:
    p = Parser(
        prog="python -m papers",
        description="Fill a table of a paper. Finished runs are kept: run the command again to resume.",
        epilog="examples:\n"
        "  python -m papers --list\n"
        "  python -m papers infocse-4 --list\n"
        "  python -m papers infocse-8 --backbone mini --model MINI_BERT --data_dir DATA_DIR --seeds 0\n"
        "  python -m papers infocse-2 --rows InfoCSE-BERT-base SimCSE-BERT-base",
    )
    p.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(specification.names()))
    p.add_argument("--backbone", help="backbone of all rows, such as mini or bert-base (default: each row's own); if "
                   "the table has rows with this backbone, only these are run")  # fmt: skip
    p.add_argument("--rows", nargs="+", default=[], metavar="LABEL", help="only these rows (default: all)")
    p.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="one run of each row per seed")
    p.add_argument("--steps", type=int, help="steps per run (default: as in the configurations)")
    p.add_argument("--model", help="start of methods without a stage 1, and generator (DiffCSE, RTD)")
    p.add_argument("--stage_one", help="start of InfoCSE (default: the stage 1 run named in its configuration)")
    p.add_argument("--data_dir", default="corpora", help="folder with texts and test sets")
    p.add_argument("--train_file", help="training text of all runs (default: as in the configurations)")
    p.add_argument("--search", nargs="+", default=[], metavar="NAME", help="add nDCG@10 on these sets of DATA_DIR/beir")
    p.add_argument("--runs", default="runs/tables", help="folder for the runs")
    p.add_argument("--known", nargs="+", default=[], metavar="FILE", help="TABLE.json with results of another machine "
                   "or of deleted runs, which are not run again")  # fmt: skip
    p.add_argument("--output", default="results", help="folder for TABLE.md, .json and .png")
    p.add_argument("--float32", action="store_true", help="no bfloat16 autocast, which is several times slower on CPUs "
                   "without bfloat16 instructions")  # fmt: skip
    p.add_argument("--collect", action="store_true", help="do not train or score; only collect finished runs")
    p.add_argument("--list", action="store_true", help="list all tables; with TABLE, its rows and missing runs")
    p.add_argument("--dry_run", action="store_true", help="like --list, with the command of every missing run")
    return p


def main(argv: list[str] | None = None) -> list[dict]:
    """Run the command and return the rows it wrote."""
    args = parser().parse_args(argv)
    if len(set(args.seeds)) < len(args.seeds) or (args.steps is not None and args.steps < 1):
        raise BadInput(f"--seeds {args.seeds} --steps {args.steps}: give distinct seeds and at least one step")
    imported = read_imported([Path(path) for path in args.known])
    choice = Choice(args.backbone, args.seeds, args.steps, args.model, args.stage_one, args.data_dir, args.train_file,
                    args.runs, not args.float32, imported, args.search)  # fmt: skip
    tables = [_select_rows(specification.read(name), args.rows) for name in args.tables or specification.names()]
    tables = [specification.with_search(table, args.search) for table in tables]
    _check_choice(args, tables, choice)
    if args.list or args.dry_run:
        brief = args.list and not args.tables and not args.dry_run
        show(overview(tables, choice) if brief else listing(tables, choice, args.dry_run))
        return []
    if not args.tables:
        raise BadInput(f"TABLE is missing; choose from: {', '.join(specification.names())} (or --list)")
    output_folder(args.output)  # fail before training, not after it
    for table in tables:
        refuse_loss(_path(table, args, ".json"), Path(choice.runs), _imported(table, choice))
    return [row for table in tables for row in _fill(table, choice, args)]


def _check_choice(args: argparse.Namespace, tables: Sequence[Table], choice: Choice) -> None:
    """Refuse a backbone without configurations; warn of known figures of runs that these flags do not ask for."""
    named = args.backbone and (CONFIGS / STAND_IN.format(args.backbone)).is_file()
    if args.backbone and not named and not any(_plans(table, choice) for table in tables):
        raise BadInput(f"--backbone {args.backbone}: no row has a configuration for it; bert-base and mini have some")
    if choice.imported and not any(known for table in tables for known in _imported(table, choice).values()):
        logger.warning("--known: none of its %d runs belongs to these tables and flags; the page beside a JSON file "
                       "names its command", len(choice.imported))  # fmt: skip


def _select_rows(table: Table, labels: Sequence[str]) -> Table:
    known = [row.label for row in table.rows]
    unknown = [label for label in labels if label not in known]
    if unknown:
        raise BadInput(f"unknown --rows '{unknown[0]}'; {table.name} has: {'; '.join(known)}")
    return replace(table, rows=tuple(row for row in table.rows if not labels or row.label in labels))


def _path(table: Table, args: argparse.Namespace, suffix: str) -> Path:
    return Path(args.output) / ((f"{table.name}-{args.backbone}" if args.backbone else table.name) + suffix)


def _plans(table: Table, choice: Choice) -> list[RunPlan]:
    return [plan for row in table.rows if isinstance(plan := plan_of(table, row, choice), RunPlan)]


def _imported(table: Table, choice: Choice) -> dict[str, bool]:
    """Folder name of each run -> whether `--known` has its figures."""
    folders = [folder for plan in _plans(table, choice) for folder in plan.folders(choice).values()]
    return {folder.name: folder.name in choice.imported for folder in folders}


def _fill(table: Table, choice: Choice, args: argparse.Namespace) -> list[dict]:
    if not args.collect:
        run(table, choice)
    rows = collect(table, choice)
    text = page(table, rows, choice)
    write_rows(_path(table, args, ".json"), rows)
    with writing(_path(table, args, ".md")) as part:
        part.write_text(text, encoding="utf-8")
    if table.figure:
        draw(table, rows, _path(table, args, ".png"))
    show(text.rstrip("\n"), _path(table, args, ".md"))
    return rows


def run(table: Table, choice: Choice) -> None:
    """Train and score missing runs, the first seed of every row before the second of any.

    A run with non-finite numbers is logged and stays missing; any other error ends the command.

    Raises:
        BadInput: test data is missing, or a flag, path or text is invalid.
        ProjectError: a script stopped; has its exit code.
    """
    tasks = needed(table.columns, choice.data_dir)  # without missing BEIR sets, but those of --search must exist
    refuse_missing(chain(search_tasks(choice.search), *tasks.values()), choice.data_dir)
    plans = _plans(table, choice)
    for seed in choice.seeds:
        for plan in plans:
            if seed in plan.folders(choice) and not is_imported(plan.folder(choice, seed), choice, table.columns):
                _run(plan, choice, seed, tasks)


def _run(plan: RunPlan, choice: Choice, seed: int, tasks: dict[str, list[Task]]) -> None:
    try:
        plan.train(choice, seed)
        plan.score(choice, seed, tasks)
    except ProjectError as error:
        if error.exit_code != NonFinite.exit_code:
            raise
        logger.error("%s, seed %d: %s", plan.name, seed, error)


if __name__ == "__main__":
    run_command(main)
