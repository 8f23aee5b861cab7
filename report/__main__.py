"""`python -m report RUN [RUN ...]`: compare runs in one self-contained HTML file."""

import logging
from pathlib import Path

from common.errors import run_command
from common.files import writing
from common.flags import Parser, check_output
from eval.labels import labelled
from report import MARK
from report.page import page
from report.runs import read_run_folder

logger = logging.getLogger(__name__)


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


if __name__ == "__main__":
    run_command(main)
