"""Peak memory of one training step: each side in a process of its own, which the kernel measures."""

from __future__ import annotations

import multiprocessing
import resource

from bench import pair
from bench.inputs import batch


def rows(args) -> list[dict]:
    """Peak resident memory in MB, of building the model and taking two steps of InfoCSE."""
    plain, ours = (_peak(side, args) for side in ("plain", "ours"))
    facts = {"name": "infocse memory", "precision": args.precision, "model": args.model}
    none = {"plain_ms": None, "ours_ms": None, "ratio": None}
    return [facts | none | {"memory_ratio": plain / ours, "plain_mb": plain, "ours_mb": ours, "runs": 1}]


def _peak(side: str, args) -> float:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_measure, args=(there, side, args))
    child.start()
    there.close()
    try:
        return here.recv()
    finally:
        child.join()


def _measure(answer, side: str, args) -> None:
    lm = pair.masked_lm(args.model)
    if side == "plain":
        model = loss = pair.plain(lm)
    else:
        model = pair.ours(lm, args.precision)
        loss = lambda **made: model(**made).loss  # noqa: E731
    for seed in (1, 2):
        made = batch(lm.config, args.batch, args.length, seed)
        pair.take_step(model, lambda made=made: loss(**made), args.precision)
    answer.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
