"""`python -m bench SUBJECT`: compare ours with a plain implementation in the same process."""

import importlib
import platform

import torch

from bench.timing import table
from common.errors import ProjectError, run_command
from common.flags import Parser, check_output, positive
from common.streams import show
from eval.scores import write_rows

SUBJECTS = {
    "eval": "STS and in-training evaluation against a SentEval-style loop",
    "gpu": "whether steps on a GPU are right and fast, and runs survive kills; takes minutes",
    "loop": "a training step without forward, backward and optimizer against the published scripts' loop",
    "search": "an index of made-up documents: seconds to build it, milliseconds and memory of a query",
    "step": "a training step against the published computation and against sentence-transformers: time and memory",
}


def main(argv: list[str] | None = None) -> list[dict]:
    """Run one subject, print its table, write its rows."""
    parser = Parser(prog="python -m bench", description=__doc__)
    subjects = parser.add_subparsers(dest="subject", required=True)
    for name, title in SUBJECTS.items():
        sub = subjects.add_parser(name, help=title, description=title)
        sub.add_argument(
            "--runs", type=positive, default=1, help="repetitions; the table shows medians"
        )
        sub.add_argument(
            "--threads",
            type=positive,
            default=1,
            help="threads of torch; 1 gives comparable CPU times",
        )
        sub.add_argument("--output", help="write the rows to this JSON file")
        importlib.import_module(f"bench.{name}").add_arguments(sub)
    args = parser.parse_args(argv)
    check_output(args.output, [], b"[")
    torch.set_num_threads(args.threads)
    processor = platform.processor() or platform.machine()
    machine = {"machine": processor, "torch": torch.__version__, "threads": args.threads}
    subject = importlib.import_module(f"bench.{args.subject}")
    rows = [{**machine, **row} for row in subject.rows(args)]
    if args.output:
        write_rows(args.output, rows)
    show(getattr(subject, "table", table)(rows))
    if failed := [row for row in rows if "failed" in row]:
        raise ProjectError(
            f"{len(failed)} of {len(rows)} parts failed; the first: {failed[0]['failed']}"
        )
    return rows


if __name__ == "__main__":
    run_command(main)
