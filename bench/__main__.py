"""`python -m bench SUBJECT`: compare ours with a plain implementation in the same process."""

import importlib
import platform
import sys

from common.errors import ProjectError, run_command
from common.flags import Parser, check_output, positive
from common.streams import show
from eval.scores import markdown, write_rows

SUBJECTS = {
    "corpus": "retrieval over a large generated corpus: time and peak memory",
    "encode_corpus": "encode a large generated corpus with a stub encoder, with kills: completeness, peak memory",
    "gpu": "a GPU: right and fast steps, the loop, kills, training; minutes",
    "loop": "a training step without forward, backward and optimizer against the published scripts' loop",
    "memory": "peak memory of a training step against the published computation",
    "text": "training text larger than memory: tokenising and batches, time and peak memory",
    "step": "a training step against the published computation and against sentence-transformers",
    "eval": "STS and in-training evaluation against a SentEval-style loop",
    "transfer": "SentEval's classifiers trained together against one after the other",
}
TIMED = {"step", "loop", "eval", "transfer"}  # ours and plain in turn, as often as --runs says
FIRST = ("name", "model", "precision", "ratio")
_MACHINE = ("machine", "torch", "threads")


def table(rows: list[dict]) -> str:
    """The rows as Markdown, the ratio first; missing figures are `not taken`."""
    names = dict.fromkeys(name for row in rows for name in row if name not in _MACHINE)
    columns = [name for name in FIRST if name in names] + [name for name in names if name not in FIRST]
    cells = [["not taken" if row.get(name) is None else str(row[name]) for name in columns] for row in rows]
    return markdown([columns, *cells])


def main(argv: list[str] | None = None) -> list[dict]:
    """Run one subject, print its table, write its rows."""
    argv = sys.argv[1:] if argv is None else argv
    parser = Parser(prog="python -m bench", description=__doc__)
    subjects = parser.add_subparsers(dest="subject", required=True)
    for name, title in sorted(SUBJECTS.items()):
        sub = subjects.add_parser(name, help=title, description=title)
        if name in TIMED:
            runs = "repetitions; the table shows medians"
            sub.add_argument("--runs", type=positive, default=1, help=runs)
        sub.add_argument("--threads", type=positive, default=1, help="threads of torch; 1 gives comparable CPU times")
        sub.add_argument("--output", help="write the rows to this JSON file")
        if name in argv:  # importing the other modules takes seconds
            importlib.import_module(f"bench.{name}").add_arguments(sub)
    args = parser.parse_args(argv)
    check_output(args.output, [], b"[")
    import torch  # not at the top: flags are checked first

    torch.set_num_threads(args.threads)
    machine = {"machine": platform.processor() or platform.machine(), "torch": torch.__version__,
               "threads": args.threads}  # fmt: skip
    subject = importlib.import_module(f"bench.{args.subject}")
    rows = [{**machine, **row} for row in subject.rows(args)]
    if args.output:
        write_rows(args.output, rows)
    show(getattr(subject, "table", table)(rows), args.output)
    if failed := [row for row in rows if "failed" in row]:
        raise ProjectError(f"{len(failed)} of {len(rows)} parts failed; the first: {failed[0]['failed']}")
    return rows


if __name__ == "__main__":
    run_command(main)
