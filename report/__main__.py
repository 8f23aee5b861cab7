"""`python -m report RUN [RUN ...]`: compare runs in one self-contained HTML file."""

import logging
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from common.errors import run_command
from common.files import writing
from common.flags import Parser, check_output, labelled
from eval.analyse.pictures import MARKERS, styles
from eval.compare.intervals import RESAMPLES, SEED
from report import MARK
from report.figures import curves
from report.runs import RunFolder, facts, findings, read_run_folder
from report.score_table import headline, score_rows, scored_differently

logger = logging.getLogger(__name__)
_FOLDER = Path(__file__).parent
_PAGES = Environment(
    loader=FileSystemLoader(_FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def parser() -> Parser:
    p = Parser(
        prog="python -m report",
        description="Write one HTML file about one or several runs: facts, curves, scores, and "
        "95 % intervals of\ntheir differences. `python -m eval.analyse` measures their vectors.",
        epilog="examples:\n"
        "  python -m report runs/infocse\n"
        "  python -m report SimCSE=runs/simcse InfoCSE=runs/infocse --output runs/both.html",
    )
    runs = (
        "run folder; NAME labels it on the page (default: the end of the path). The first run is "
        "the baseline"
    )
    p.add_argument("runs", nargs="+", metavar="[NAME=]RUN", help=runs)
    p.add_argument("--output", default="report.html", help="the file to write")
    return p


def main(argv: list[str] | None = None) -> Path:
    """Run the command and return the file it wrote."""
    args = parser().parse_args(argv)
    check_output(args.output, [], MARK)
    runs = [read_run_folder(label, Path(path)) for label, path in labelled(args.runs).items()]
    content = page(runs).encode("utf-8", "replace")
    with writing(Path(args.output)) as part:
        part.write_bytes(content)
    logger.info("%s: %d runs, %.1f MB", args.output, len(runs), len(content) / 1e6)
    return Path(args.output)


def page(runs: Sequence[RunFolder]) -> str:
    """HTML of the report.

    Its Content-Security-Policy forbids all connections and scripts, so text that is not escaped by
    mistake can do no harm.
    """
    labels, rows = [run.label for run in runs], score_rows(runs)
    table = pd.DataFrame([facts(run.record) for run in runs])
    same = (table.nunique() == 1) & (len(runs) > 1)
    headlines = [*headline(labels, rows), *scored_differently(runs)]
    for run in runs:
        headlines += [f"{run.label}: {words}" for words in findings(run)]
    return _PAGES.get_template("page.html.j2").render(
        labels=labels,
        looks=list(styles(labels).values()),
        signs=dict(zip(MARKERS, "●■▲◆▼✚✖★", strict=True)),
        facts=[(name, list(table[name])) for name in table.columns[~same]],
        shared=[(name, table[name][0]) for name in table.columns[same]],
        curves=curves(labels, [run.history for run in runs]),
        headlines=headlines,
        scores=[(str(key), cells) for key, cells in rows],
        resamples=RESAMPLES,
        seed=SEED,
        without={
            "log": [run.label for run in runs if not run.history],
            "scores": [run.label for run in runs if run.scores is None],
        },
        style=Markup((_FOLDER / "style.css").read_text(encoding="utf-8")),
    )


if __name__ == "__main__":
    run_command(main)
