"""`python -m bench SUBJECT`: ratios of a plain implementation's cost to ours, measured side by side.

    python -m bench step --model mini --repeats 5
    python -m bench step --precision bf16 --output step.json
    python -m bench memory

One file a subject, with `rows(args) -> list[dict]`. Times are CPU seconds of this process, with as many threads as
OMP_NUM_THREADS says (1 disturbs least).
"""

from __future__ import annotations

import argparse
import importlib
import sys

from bench.inputs import MODELS
from errors import run_command
from eval.report import markdown, write_rows

SUBJECTS = {
    "step": "bench.step",  # one training step
    "memory": "bench.memory",  # its peak memory
}
COLUMNS = ("ratio", "memory_ratio", "plain_ms", "ours_ms", "runs")


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m bench`."""
    p = argparse.ArgumentParser(
        prog="python -m bench",
        allow_abbrev=False,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("subject", choices=SUBJECTS)
    p.add_argument("--model", choices=MODELS, default="bert-base", help="sizes; the weights are random")
    p.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16: under autocast, both sides")
    p.add_argument("--batch", type=int, default=64, help="sentences, of which each side computes two views")
    p.add_argument("--length", type=int, default=32, help="tokens at which sentences are cut")
    p.add_argument("--repeats", type=int, default=5, help="measurements of each side, alternating; the median counts")
    p.add_argument("--output", help="write the rows to this JSON file")
    return p


def table(rows: list[dict]) -> str:
    """The rows as aligned Markdown, the ratio first; what a subject does not measure stays empty."""

    def cell(value) -> str:
        return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)

    head = ["name", "model", "precision", *COLUMNS]
    return markdown([head, *([cell(row.get(name)) for name in head] for row in rows)])


def main(argv: list[str] | None = None) -> list[dict]:
    """Run one subject, print its table and return its rows."""
    args = parser().parse_args(argv)
    rows = importlib.import_module(SUBJECTS[args.subject]).rows(args)
    sys.stdout.write(table(rows) + "\n")
    if args.output:
        write_rows(args.output, rows)
    return rows


if __name__ == "__main__":
    run_command(main)
