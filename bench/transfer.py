"""SentEval's transfer protocol: all fits at once against one fit after the other; both must agree in every digit.

Features of MR's size are generated, so that nothing is downloaded. One outer split has 41 fits.
"""

from __future__ import annotations

import argparse

import numpy as np

from bench import plain_transfer
from bench.timing import alternate, bench_row
from common.errors import ProjectError
from common.flags import positive
from eval.transfer.validation import MODES, Judge


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this subject."""
    parser.add_argument("--rows", type=positive, default=10662, help="sentences (default: MR's 10,662)")
    parser.add_argument("--dimension", type=positive, default=384, help="of the features")
    parser.add_argument("--outer", type=positive, default=1, help="outer folds to run, 1 to 10")
    parser.add_argument("--mode", choices=list(MODES), default="test")


def generated(count: int, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors with two overlapping classes: about 75 % can be told apart, as with real sentences in MR."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 2
    x = rng.normal(size=(count, dimension)) + 0.7 * np.outer(labels - 0.5, rng.normal(size=dimension)) / 4
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), labels


def rows(args: argparse.Namespace) -> list[dict]:
    """One row; an accuracy that differs in a digit is an error."""
    x, y = generated(args.rows, args.dimension)

    def ours(_: int) -> tuple[float, float]:
        outcome = Judge(x, y, args.mode, outer=args.outer).nested()
        return outcome.dev, outcome.test

    timed = alternate(lambda _: plain_transfer.nested(MODES[args.mode], x, y, args.outer), ours, args.runs)
    if timed.plain != timed.ours:
        raise ProjectError(f"accuracies differ: plain {timed.plain}, ours {timed.ours}")
    dev, test = timed.ours
    return [bench_row(f"transfer, {args.outer} outer folds", "fp32", f"{args.dimension}-d features", timed, args.runs,
                      dev=dev, test=test)]  # fmt: skip
