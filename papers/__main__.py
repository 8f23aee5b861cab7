"""`python -m papers TABLE`: fill a table or figure of a paper, or of a study, with our numbers; train missing runs."""

import argparse
import logging
from dataclasses import replace
from itertools import chain
from pathlib import Path

from common.errors import BadInput, NonFinite, ProjectError, run_command
from common.files import read_json, writing
from common.flags import Parser, output_folder
from common.streams import show
from eval.scores import write_rows
from eval.tasks import Task
from papers import specification, views
from papers import study as studies
from papers.imported import REMEDY, read_imported
from papers.listing import Listed, listing, overview
from papers.page import draw, page, rewritten
from papers.plans import STAND_IN, Choice, RunPlan, plan_of
from papers.results import collect, is_imported
from papers.runs import CONFIGS, finished, refuse_missing
from papers.specification import Table
from papers.study import Study
from papers.tasks import needed

logger = logging.getLogger(__name__)


def parser() -> Parser:
    p = Parser(
        prog="python -m papers",
        description="Fill a table of a paper or a study. Finished runs are kept: run the command again to resume.",
        epilog="examples:\n"
        "  python -m papers --list\n"
        "  python -m papers infocse-4 --list\n"
        "  python -m papers infocse-8 --backbone mini --model MINI_BERT --data_dir DATA_DIR --seeds 0\n"
        "  python -m papers infocse-2 --rows InfoCSE-BERT-base SimCSE-BERT-base",
    )
    p.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(_names()))
    p.add_argument("--backbone", help="backbone of all rows, such as mini or bert-base (default: each row's own); if "
                   "the table has rows with this backbone, only these are run")  # fmt: skip
    p.add_argument("--rows", nargs="+", default=[], metavar="LABEL", help="only these rows, of a study by the "
                   "first level (default: all)")  # fmt: skip
    p.add_argument("--seeds", nargs="+", type=int, help="one run of each row per seed (default: 0 1 2, or as in the "
                   "study)")  # fmt: skip
    p.add_argument("--steps", type=int, help="steps per run (default: as in the configurations)")
    p.add_argument("--model", help="start of methods without a stage 1, and generator (DiffCSE, RTD)")
    p.add_argument("--stage_one", help="start of InfoCSE (default: the stage 1 run named in its configuration)")
    p.add_argument("--data_dir", default="corpora", help="folder with texts and test sets")
    p.add_argument("--train_file", help="training text of all runs (default: as in the configurations)")
    p.add_argument("--runs", default="runs/tables", help="folder for the runs")
    p.add_argument("--output", default="results", help="folder for TABLE.md, .json and .png; its figures of "
                   "runs that are not here stay")  # fmt: skip
    p.add_argument("--float32", action="store_true", help="no bfloat16 autocast, which is several times slower on CPUs "
                   "without bfloat16 instructions")  # fmt: skip
    p.add_argument("--collect", action="store_true", help="do not train or score; only collect finished runs")
    p.add_argument("--page", action="store_true", help="only write the page again from TABLE.json in --output")
    p.add_argument("--list", action="store_true", help="list all tables; with TABLE, its rows and missing runs")
    p.add_argument("--dry_run", action="store_true", help="like --list, with the command of every missing run")
    return p


def main(argv: list[str] | None = None) -> list[dict]:
    """Run the command and return the rows it wrote."""
    args = parser().parse_args(argv)
    if len(set(args.seeds or ())) < len(args.seeds or ()) or (args.steps is not None and args.steps < 1):
        raise BadInput(f"--seeds {args.seeds} --steps {args.steps}: give distinct seeds and at least one step")
    contents = [_listed(name, args) for name in args.tables or _names()]
    _refuse_backbone(args.backbone, contents)
    if args.list or args.dry_run:
        show(listing(contents, args.dry_run) if args.tables else overview(contents))
        return []
    if not args.tables:
        raise BadInput(f"TABLE is missing; choose from: {', '.join(_names())} (or --list)")
    output_folder(args.output)  # fail before training, not after it
    return [row for content, choice, _ in contents for row in _fill(content, choice, args)]


def _names() -> list[str]:
    return [*specification.names(), *studies.names()]


def _listed(name: str, args: argparse.Namespace) -> Listed:
    """A table or study, the choice for it, and what its file in `--output` has."""
    choice = Choice(args.backbone, args.seeds or [0, 1, 2], args.steps, args.model, args.stage_one, args.data_dir,
                    args.train_file, args.runs, not args.float32)  # fmt: skip
    if name in studies.names():
        if args.backbone and args.tables:
            raise BadInput(f"--backbone: papers/studies/{name}.yaml says what {name} compares; leave it out")
        study = studies.read(name)
        choice = replace(choice, seeds=args.seeds or [int(seed) for seed in study.seeds])
        return study, choice, studies.known_rows(study, _path(study, args, ".json")).keys()
    table = _select_rows(specification.read(name), args.rows)
    choice = replace(choice, imported={} if args.page else read_imported(_path(table, args, ".json")))
    return table, choice, choice.imported.keys()


def _refuse_backbone(backbone: str | None, contents: list[Listed]) -> None:
    if backbone and not (CONFIGS / STAND_IN.format(backbone)).is_file():
        if not any(_plans(table, choice) for table, choice, _ in contents if isinstance(table, Table)):
            raise BadInput(f"--backbone {backbone}: no row has a configuration for it; bert-base and mini have some")


def _select_rows(table: Table, labels: list[str]) -> Table:
    known = [row.label for row in table.rows]
    unknown = [label for label in labels if label not in known]
    if unknown:
        raise BadInput(f"unknown --rows '{unknown[0]}'; {table.name} has: {'; '.join(known)}")
    return replace(table, rows=tuple(row for row in table.rows if not labels or row.label in labels))


def _path(content: Table | Study, args: argparse.Namespace, suffix: str) -> Path:
    return Path(args.output) / ((f"{content.name}-{args.backbone}" if args.backbone else content.name) + suffix)


def _plans(table: Table, choice: Choice) -> list[RunPlan]:
    return [plan for row in table.rows if isinstance(plan := plan_of(table, row, choice), RunPlan)]


def _fill(content: Table | Study, choice: Choice, args: argparse.Namespace) -> list[dict]:
    """Train what is missing, write JSON, page and picture, and return the rows."""
    path, fill = _path(content, args, ".json"), _rows if isinstance(content, Table) else _rows_of_study
    rows = fill(content, choice, path, args)
    if not args.page:
        write_rows(path, rows)
    if isinstance(content, Table):
        text, place = page(content, rows, choice), path.with_suffix(".md")
    else:
        place, made = path.with_name(f"{content.page or content.name}.md"), views.tables(content, rows)
        before = place.read_text(encoding="utf-8") if place.is_file() else f"# {content.title}\n"
        text = rewritten(before, content.name, f"python -m papers {content.name}", made)
    with writing(place) as part:
        part.write_text(text, encoding="utf-8")
    if content.figure:
        (draw if isinstance(content, Table) else views.draw)(content, rows, path.with_suffix(".png"))
    show(text.rstrip("\n") if isinstance(content, Table) else made, place)
    return rows


def _rows(table: Table, choice: Choice, path: Path, args: argparse.Namespace) -> list[dict]:
    """The rows of a table; BadInput if its file has figures that would be lost."""
    if args.page:
        rows = read_json(path, "a results table", REMEDY, kind=list)
        if not {(row.label, column.name) for row in table.rows for column in table.columns} <= {
            (row.get("label"), row.get("column")) for row in rows
        }:
            raise BadInput(f"{path}: does not have the rows and columns of {table.name}; {REMEDY}")
        return rows
    asked = {folder.name for plan in _plans(table, choice) for folder in plan.folders(choice).values()}
    lost = [name for name in choice.imported if name not in asked and finished(Path(choice.runs) / name) is None]
    if lost:
        raise BadInput(
            f"{path} has figures of {len(lost)} runs that are not in {choice.runs} ({lost[0]}, ...) and would be lost; "
            f"give the flags, rows and seeds of that file, or another --output"
        )
    if not args.collect:
        run(table, choice)
    return collect(table, choice)


def _rows_of_study(study: Study, choice: Choice, path: Path, args: argparse.Namespace) -> list[dict]:
    if args.page:
        return studies.ordered(study, studies.known_rows(study, path))
    return studies.fill(study, choice, path, args.collect, args.rows)


def run(table: Table, choice: Choice) -> None:
    """Train and score missing runs, the first seed of every row before the second of any.

    A run with non-finite numbers is logged and stays missing; any other error ends the command.

    Raises:
        BadInput: test data is missing, or a flag, path or text is invalid.
        ProjectError: a script stopped; has its exit code.
    """
    tasks = needed(table.columns, choice.data_dir)
    refuse_missing(chain(*tasks.values()), choice.data_dir)
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
