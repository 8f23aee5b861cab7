"""`python -m bench SUBJECT`: compare ours with a plain implementation in the same process."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Sequence

import torch

from common.errors import ProjectError, run_command
from common.flags import Parser, check_output, positive
from common.streams import show
from eval.scores import markdown, write_rows

SUBJECTS = {
    "gpu": "whether steps on a GPU are right and fast, and runs survive kills; takes minutes",
    "search": "an index of made-up documents: seconds to build it, time and memory of a query",
    "step": "time and memory of a step against the published one and sentence-transformers",
}
MACHINE = ("machine", "torch", "threads", "device", "part")  # columns that the table leaves out


def main(argv: Sequence[str] | None = None) -> list[dict]:
    """Run one subject, print its table, write its rows."""
    parser = Parser(prog="python -m bench", description=__doc__)
    subjects = parser.add_subparsers(dest="subject", required=True)
    for name, title in SUBJECTS.items():
        sub = subjects.add_parser(name, help=title, description=title)
        threads = "threads of torch; 1 gives comparable CPU times"
        sub.add_argument("--threads", type=positive, default=1, help=threads)
        sub.add_argument("--output", help="write the rows to this JSON file")
        importlib.import_module(f"bench.{name}").add_arguments(sub)
    args = parser.parse_args(argv)
    check_output(args.output, [], b'[\n{"machine": ')
    torch.set_num_threads(args.threads)
    machine = {
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "threads": args.threads,
    }
    subject = importlib.import_module(f"bench.{args.subject}")
    rows = [{**machine, **row} for row in subject.rows(args)]
    if args.output:
        write_rows(args.output, rows)
    show(table(rows))
    failed = [row for row in rows if "failed" in row]
    if failed:
        count = f"{len(failed)} of {len(rows)} parts"
        raise ProjectError(f"{count} failed; the first: {failed[0]['failed']}")
    return rows


def table(rows: list[dict]) -> str:
    """The rows as Markdown, those of each part of `gpu` as a table of their own."""
    tables = []
    for part in dict.fromkeys(row.get("part") for row in rows):
        mine = [row for row in rows if row.get("part") == part]
        names = dict.fromkeys(name for row in mine for name in row)
        columns = [name for name in names if name not in MACHINE]
        body = [columns]
        for row in mine:
            values = [row.get(name) for name in columns]
            body.append(["" if value is None else str(value) for value in values])
        title = [] if part is None else [f"{part}:"]
        tables += [*title, markdown(body)]
    return "\n\n".join(tables)


if __name__ == "__main__":
    run_command(main)
