"""`python -m papers TABLE`: fill a table or figure of a paper, or of a study, with our numbers; train missing runs."""

import argparse
import logging
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path, PurePath

from common.errors import BadInput, NonFinite, ProjectError, run_command
from common.files import read_json, writing
from common.flags import Parser, output_folder, positive
from common.signals import stoppable
from common.streams import show
from eval.scores import markdown, write_rows
from papers import page, specification, study, study_page
from papers.results import collect, needed
from papers.runs import Choice, RunPlan, finished, plan_of
from papers.specification import Table
from papers.study import Study

logger = logging.getLogger(__name__)
_EXAMPLES = """examples:
  python -m papers --list
  python -m papers infocse-4 --list
  python -m papers infocse-8 --backbone mini --model MINI_BERT --data_dir DATA_DIR --seeds 0
  python -m papers infocse-2 --rows InfoCSE-BERT-base SimCSE-BERT-base"""
_FLAGS = {
    "backbone": "backbone of all rows, such as mini or bert-base (default: each row's own); if the table has rows with "
    "this backbone, only these are run",
    "model": "initial model of methods without a stage 1, and generator (DiffCSE, RTD)",
    "stage_one": "initial model of InfoCSE (default: the stage 1 run named in its configuration)",
    "train_file": "training text of all runs (default: as in the configurations)",
}
_SWITCHES = {
    "float32": "no bfloat16 autocast, which is several times slower on CPUs without bfloat16 instructions",
    "collect": "do not train or score; only collect finished runs",
    "page": "only write the page again from TABLE.json in --output",
    "list": "the rows and missing runs of a TABLE, without later seeds of a study whose first seed chooses; without "
    "TABLE, all tables are listed",
    "dry_run": "like --list, with the command of every missing run",
}


def parser() -> Parser:
    p = Parser(
        prog="python -m papers",
        description="Fill a table of a paper or a study. Finished runs are kept: run the command again to resume.",
        epilog=_EXAMPLES,
    )
    p.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(_names()))
    rows = "only these rows; of a study, these values of its first level (default: all)"
    p.add_argument("--rows", nargs="+", default=[], metavar="LABEL", help=rows)
    seeds = "one run of each row per seed (default: 0 1 2, or as in the study)"
    p.add_argument("--seeds", nargs="+", type=int, help=seeds)
    p.add_argument(
        "--steps", type=positive, help="steps per run (default: as in the configurations)"
    )
    p.add_argument("--data_dir", default="corpora", help="folder with texts and test sets")
    p.add_argument("--runs", default="runs/tables", help="folder for the runs")
    p.add_argument("--output", default="results", help="folder for TABLE.md, .json and .png")
    for name, about in _FLAGS.items():
        p.add_argument(f"--{name}", help=about)
    for name, about in _SWITCHES.items():
        p.add_argument(f"--{name}", action="store_true", help=about)
    return p


@stoppable
def main(argv: list[str] | None = None) -> list[dict]:
    """Run the command and return the rows it wrote."""
    args = parser().parse_args(argv)
    contents = [_read(name, args) for name in args.tables or _names()]
    if not args.tables:
        show(overview([content for content, *_ in contents], contents[0][1], Path(args.output)))
        return []
    if args.list or args.dry_run:
        show("\n".join(listing(*content, args.rows, args.dry_run) for content in contents))
        return []
    output_folder(args.output)  # fail before training, not after it
    return [row for content, choice, path in contents for row in _fill(content, choice, path, args)]


def _names() -> list[str]:
    return [*specification.names(), *study.names()]


def _read(name: str, args: argparse.Namespace) -> tuple[Table | Study, Choice, Path]:
    """A table or study, the choice for it, and its JSON file in `--output`."""
    given = {
        name: getattr(args, name)
        for name in ("backbone", "model", "stage_one", "train_file", "data_dir", "runs")
    }
    choice = Choice(seeds=args.seeds or (0, 1, 2), steps=args.steps, bf16=not args.float32, **given)
    is_study = name in study.names()
    content = study.read(name) if is_study else specification.read(name)
    known = (
        [levels[0] for levels in content.combinations]
        if is_study
        else [row.label for row in content.rows]
    )
    if unknown := [label for label in args.rows if label not in known]:
        raise BadInput(
            f"unknown --rows '{unknown[0]}'; {name} has: {'; '.join(dict.fromkeys(known))}"
        )
    if is_study:
        choice = replace(choice, seeds=args.seeds or [int(seed) for seed in content.seeds])
        return content, choice, Path(args.output) / f"{name}.json"
    table = replace(
        content, rows=tuple(row for row in content.rows if not args.rows or row.label in args.rows)
    )
    return (
        table,
        choice,
        Path(args.output) / f"{name}{f'-{args.backbone}' * bool(args.backbone)}.json",
    )


def overview(contents: Sequence[Table | Study], choice: Choice, output: Path) -> str:
    """A line per table and study: its rows, those with a figure of ours in `output`, and those that
    can be run or not.

    Below are the rows that cannot be run, each with its reason.
    """
    body, reasons = [["table", "title", "rows", "run", "runnable", "published only"]], []
    for content in contents:
        files = [*output.glob(f"{content.name}.json"), *output.glob(f"{content.name}-*.json")]
        if isinstance(content, Study):
            keys = {key[:-1] for file in files for key in study.known_rows(content, file)}
            counts = [
                len(content.combinations),
                len(keys),
                len(content.combinations) - len(keys),
                0,
            ]
        else:
            results = [
                row for file in files for row in read_json(file, "a results table", None, list)
            ]
            run_labels = {result["label"] for result in results if result["ours"] is not None}
            plans = {row.label: plan_of(content, row, choice) for row in content.rows}
            not_run = {label: plan for label, plan in plans.items() if label not in run_labels}
            only = {label: why for label, why in not_run.items() if isinstance(why, str)}
            reasons += [f"{content.name}, {label}: {why}" for label, why in only.items()]
            counts = [len(plans), len(plans) - len(not_run), len(not_run) - len(only), len(only)]
        body.append([content.name, content.title, *map(str, counts)])
    return "\n".join([markdown(body), *reasons])


def listing(
    content: Table | Study, choice: Choice, path: Path, some: Sequence[str], commands: bool
) -> str:
    """A line per row with its state, the number of missing runs and, if asked for, their commands.

    `some` are the levels of a study, see `study.fill`.
    """
    if isinstance(content, Study):
        done, asked = study.known_rows(content, path), study.seeds_of(content, choice, path, some)
        rows = [
            (levels, study.plan_of(content, levels, choice), seeds)
            for levels, seeds in asked.items()
        ]
    else:
        done, rows = (
            {},
            [((row.label,), plan_of(content, row, choice), choice.seeds) for row in content.rows],
        )
    body, missing = [["row", "state"]], {}
    for levels, plan, seeds in rows:
        if isinstance(plan, RunPlan):
            folders = plan.folders(replace(choice, seeds=seeds))
            left = [
                s
                for s, folder in folders.items()
                if (*levels, str(s)) not in done and finished(folder) is None
            ]
            for seed in left:
                for planned in filter(None, (plan.starts_from, plan)):
                    if finished(planned.folder(choice, seed)) is None:
                        missing[planned.folder(choice, seed)] = planned.command(choice, seed)
            state = f"{len(folders) - len(left)} of {len(folders)} finished"
            plan = state if plan.flags or plan.baseline else "evaluated untrained"
        body.append([", ".join(levels), plan])
    lines = [f"{content.name}: {content.title}", markdown(body)]
    lines.append(f"{len(missing)} runs are missing; runs shared by rows count once.")
    return "\n".join(
        [
            *lines,
            *(shlex.join(["python", *words]) for words in missing.values() if commands and words),
        ]
    )


def _fill(
    content: Table | Study, choice: Choice, path: Path, args: argparse.Namespace
) -> list[dict]:
    """Train what is missing, write JSON, page and picture, and return the rows."""
    is_table = isinstance(content, Table)
    if args.page:
        rows = read_json(path, "results", "give another --output", list)
        if is_table:
            labels = {row["label"] for row in rows}
            content = replace(
                content, rows=tuple(row for row in content.rows if row.label in labels)
            )
        else:
            rows = study.ordered(content, study.known_rows(content, path))
    else:
        fill = _rows if is_table else partial(study.fill, some=args.rows)
        rows = fill(content, choice, path, args.collect)
        write_rows(path, rows)
    if is_table:
        text, made, file = page.page(content, rows, choice), "", path.with_suffix(".md")
    else:
        made, file = (
            study_page.tables(content, rows),
            path.with_name(f"{content.page or content.name}.md"),
        )
        before = file.read_text(encoding="utf-8") if file.is_file() else f"# {content.title}\n"
        text = page.rewritten(before, content.name, f"python -m papers {content.name}", made)
    with writing(file) as part:
        part.write_text(text, encoding="utf-8")
    if content.figure:
        (page.draw if is_table else study_page.draw_curves)(content, rows, path.with_suffix(".png"))
    show(made or text.rstrip("\n"))
    return rows


def _rows(table: Table, choice: Choice, path: Path, collect_only: bool) -> list[dict]:
    """The rows of a table; missing runs are trained and scored, the first seed of every row before
    any second one.

    A run with non-finite numbers is logged and stays missing; any other error ends the command.

    Raises:
        BadInput: no row can be run, the table's file has figures that would be lost, or test data
            is missing.
        ProjectError: a script stopped; has its exit code.
    """
    plans = [plan for row in table.rows if isinstance(plan := plan_of(table, row, choice), RunPlan)]
    if not plans and not collect_only:
        raise BadInput(f"{table.name}: no row can be run with these flags; --list says why")
    asked = (
        {folder.name for plan in plans for folder in plan.folders(choice).values()}
        if not collect_only
        else set()
    )
    before = (
        read_json(path, "a results table", "give another --output", list) if path.is_file() else []
    )
    runs = {PurePath(facts["run"]).name for row in before for facts in row["provenance"].values()}
    if lost := [run for run in runs - asked if finished(Path(choice.runs) / run) is None]:
        missing = f"{len(lost)} runs that are not in {choice.runs} ({min(lost)}, ...)"
        raise BadInput(f"{path} has figures of {missing} and would be lost; give another --output")
    if collect_only:
        return collect(table, choice)
    tasks = needed(table.columns, choice.data_dir)
    for task in chain(*tasks.values()):
        task.load(choice.data_dir)  # missing data is an error now, not after the training
    for seed in choice.seeds:
        for plan in (plan for plan in plans if seed in plan.folders(choice)):
            try:
                plan.train(choice, seed)
                plan.score(choice, seed, tasks)
            except ProjectError as error:
                if error.exit_code != NonFinite.exit_code:
                    raise
                logger.error("%s, seed %d: %s", plan.name, seed, error)
    return collect(table, choice)


if __name__ == "__main__":
    run_command(main)
