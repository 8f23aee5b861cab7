"""`python -m papers TABLE`: fill a table of a paper, or of a study, and train its missing runs."""

import argparse
import shlex
from pathlib import Path

from common.errors import BadInput, run_command
from common.files import writing
from common.flags import Parser, nearest, output_folder, positive
from common.folders import locked
from common.signals import stoppable
from common.streams import show
from eval.scores import write_rows
from papers import page, results, specification, study, study_page, study_runs, summary
from papers.listing import overview, states
from papers.runs import Choice
from papers.specification import Table
from papers.study import Study

_EXAMPLES = """examples:
  python -m papers --list
  python -m papers infocse-4 --list
  python -m papers infocse-8 --backbone mini --model MINI_BERT --data_dir DATA_DIR --seeds 0
  python -m papers infocse-2 --rows InfoCSE-BERT-base SimCSE-BERT-base"""
_FLAGS = {
    "backbone": "backbone of all rows, such as mini or bert-base (default: each row's own); if the "
    "table has rows with this backbone, only these are run",
    "model": "checkpoint that methods without a stage 1 start from, and generator (DiffCSE, RTD)",
    "stage_one": "checkpoint that InfoCSE starts from (default: that of its configuration)",
    "train_file": "training text of all runs (default: as in the configurations)",
}
_SWITCHES = {
    "float32": "no bfloat16 autocast, which is several times slower on CPUs without bfloat16 "
    "instructions",
    "collect": "do not train or score; only collect finished runs",
    "page": "only write the page again from its JSON in --output; without TABLE, all pages",
    "list": "the rows and missing runs of a TABLE, without later seeds of a study whose first seed "
    "chooses; without TABLE, all tables are listed",
    "dry_run": "like --list, with the command of every missing run",
}


def parser() -> Parser:
    p = Parser(
        prog="python -m papers",
        description="Fill a table of a paper or a study. Finished runs are kept: run the command "
        "again to resume.",
        epilog=_EXAMPLES,
    )
    p.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(_names()))
    rows = "only these rows; of a study, these values of its first level (default: all)"
    p.add_argument("--rows", nargs="+", default=[], metavar="LABEL", help=rows)
    seeds = (
        "one run of each row per seed (default: 0 1 2, or as in the study); a study that chooses "
        "also runs its first seed"
    )
    p.add_argument("--seeds", nargs="+", type=int, help=seeds)
    steps = "steps per run (default: as in the configurations)"
    p.add_argument("--steps", type=positive, help=steps)
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
    contents = [_read(name, args.rows) for name in args.tables or _names()]
    if args.page and not args.tables:
        return _write_pages(args)
    if not args.tables:
        show(overview(contents, _choice(args), Path(args.output)))
        return []
    if args.list or args.dry_run:
        for content in contents:
            path, choice = _json_file(content, args), _choice(args, content)
            show(states(content, choice, path, args.rows, commands=args.dry_run))
        return []
    for content in contents:
        if isinstance(content, Study) and content.recorded and not args.page:
            raise BadInput(f"{content.name}: not trained by this command: {content.recorded}")
    output_folder(args.output)  # fail before training, not after it
    written, left = [], []
    for content in contents:
        rows = _fill(content, args)
        written += rows
        if not rows:
            left.append(content)
    for content in left:  # others may have ended meanwhile
        written += _fill(content, args)
    return written


def _names() -> list[str]:
    return [*specification.names(), *study.names()]


def _read(name: str, labels: list[str]) -> Table | Study:
    """A table, with the rows of these labels (default: all), or a study."""
    if name not in _names():
        guess = nearest(name, _names())
        raise BadInput(f"unknown table '{name}': {guess}python -m papers lists them")
    content = study.read(name) if name in study.names() else specification.read(name)
    if isinstance(content, Study):
        known = [levels[0] for levels in content.combinations]
    else:
        known = [row.label for row in content.rows]
    for label in labels:
        if label not in known:
            choices = "; ".join(dict.fromkeys(known))
            raise BadInput(f"unknown --rows '{label}'; {name} has: {choices}")
    return content.with_rows(labels) if isinstance(content, Table) and labels else content


def _choice(args: argparse.Namespace, content: Table | Study | None = None) -> Choice:
    seeds = args.seeds or (content.seeds if isinstance(content, Study) else (0, 1, 2))
    if isinstance(content, Study) and content.choose:
        seeds = [*dict.fromkeys([content.seeds[0], *seeds])]  # or other seeds choose other levels
    return Choice(
        backbone=args.backbone,
        seeds=seeds,
        steps=args.steps,
        model=args.model,
        stage_one=args.stage_one,
        data_dir=args.data_dir,
        train_file=args.train_file,
        runs=args.runs,
        bf16=not args.float32,
    )


def _json_file(content: Table | Study, args: argparse.Namespace) -> Path:
    name = content.name
    if isinstance(content, Table):
        name = f"{content.file}-{args.backbone}" if args.backbone else content.file
    return Path(args.output) / f"{name}.json"


def _write_pages(args: argparse.Namespace) -> list[dict]:
    """Write every page again from its JSON, a table's with the command that filled it."""
    written = []
    for file in sorted(Path(args.output).glob("*.json")):
        for command in results.commands_in(file):
            _, _, _, *words = shlex.split(command)  # after python -m papers
            written += main([*words, "--page", "--output", args.output])
    for name in study.names():
        if (Path(args.output) / f"{name}.json").is_file():
            written += _fill(study.read(name), args)
    if (Path(args.output) / "README.md").is_file():  # other folders lack files of the summary
        summary.write(Path(args.output))
    return written


def _fill(content: Table | Study, args: argparse.Namespace) -> list[dict]:
    """Train what is missing, write JSON, page and picture, and return the rows."""
    path, choice = _json_file(content, args), _choice(args, content)
    if isinstance(content, Table):
        return _fill_table(content, choice, path, args)
    return _fill_study(content, choice, path, args)


def _fill_table(table: Table, choice: Choice, path: Path, args: argparse.Namespace) -> list[dict]:
    if args.page:
        rows = results.known_rows(table, path)
        if not rows:
            raise BadInput(f"{path}: has no rows of {table.name}")
        table = table.with_rows([row["label"] for row in rows])
        _, _, _, *words = shlex.split(rows[0]["command"])  # after python -m papers
        choice = _choice(parser().parse_args(words), table)
    else:
        rows = results.fill(table, choice, path, args.collect)
        if not rows:
            return _left(path)
        results.write(table, path, rows)
    text = page.section(table, rows, choice)
    head = f"# {table.paper}\n\n{page.MEANING}\n"
    _rewrite(path.with_suffix(".md"), head, table.name, text)
    show(text)
    return rows


def _fill_study(content: Study, choice: Choice, path: Path, args: argparse.Namespace) -> list[dict]:
    if args.page:
        rows = study.ordered(content, study.known_rows(content, path))
    else:
        rows = study_runs.fill(content, choice, path, args.collect, args.rows)
        if not rows:
            return _left(path)
        with locked(path, wait=True):  # another command may have added rows
            known = study.known_rows(content, path) | study.by_run(content, rows)
            study_runs.refuse_mixed(content, known)
            rows = study.ordered(content, known)
            write_rows(path, rows)
    tables = study_page.tables(content, rows)
    file = path.with_name(f"{content.page or content.name}.md")
    _rewrite(file, f"# {content.title}\n", content.name, tables)
    if content.figure:
        study_page.draw_increases(content, content.figure, rows, path.with_suffix(".png"))
    show(tables)
    return rows


def _left(path: Path) -> list[dict]:
    show(f"{path}: other commands are still at its runs; the last to end writes it")
    return []


def _rewrite(path: Path, head: str, name: str, content: str) -> None:
    """Replace the part of a page that `python -m papers NAME` makes; a new page gets a head."""
    with locked(path, wait=True), writing(path) as part:
        before = path.read_text(encoding="utf-8") if path.is_file() else head
        made = page.rewritten(before, name, f"python -m papers {name}", content)
        part.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    run_command(main)
