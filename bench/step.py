"""One training step, forward and backward: ours against the published computation and sentence-transformers."""

from __future__ import annotations

import logging

from torch.utils.flop_counter import FlopCounterMode

from bench import pair, peer
from bench.inputs import batch
from bench.pair import add_arguments
from bench.timing import alternate, apart, bench_row

__all__ = ["add_arguments", "rows"]
logger = logging.getLogger(__name__)


def rows(args) -> list[dict]:
    """InfoCSE's step against the plain one, and SimCSE's against that of sentence-transformers."""
    return [apart(infocse, args), apart(peer.simcse, args)]


def infocse(args) -> dict:
    """Both sides take the same batches, a new one in each repetition."""
    lm = pair.masked_lm(args.model)
    plain, ours = pair.plain(pair.masked_lm(args.model)), pair.ours(lm, args.precision)

    def step(model, loss):
        def run(number: int) -> None:
            made = batch(lm.config, args.batch, args.length, number + 1)
            pair.take_step(model, lambda: loss(**made), args.precision)

        return run

    sides = {"plain": step(plain, plain), "ours": step(ours, lambda **made: ours(**made).loss)}
    tflop = {name: _tflop(side) for name, side in sides.items()}
    logger.info("TFLOP a step: plain %.2f, ours %.2f", tflop["plain"], tflop["ours"])
    timed = alternate(sides["plain"], sides["ours"], args.runs, warm_up=True)
    return bench_row("infocse step", args.precision, args.model, timed, args.runs,
                     plain_tflop=round(tflop["plain"], 2), ours_tflop=round(tflop["ours"], 2))  # fmt: skip


def _tflop(side) -> float:
    with FlopCounterMode(display=False) as counter:
        side(0)
    return counter.get_total_flops() / 1e12
