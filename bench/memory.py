"""Peak memory of a training step, measured by the kernel in one process per side."""

from functools import partial

from bench import pair
from bench.pair import add_arguments, batch
from bench.timing import apart
from common.memory import peak_mib

__all__ = ["add_arguments", "rows"]


def rows(args) -> list[dict]:
    """Peak resident memory in MiB of building the model and taking two steps of InfoCSE."""
    plain, ours = (apart(_measure, side, args) for side in ("plain", "ours"))
    row = {"name": "infocse memory", "model": args.model, "precision": args.precision, "runs": 1}
    return [row | {"memory_ratio": round(plain / ours, 2), "plain_mib": round(plain), "ours_mib": round(ours)}]


def _measure(side: str, args) -> float:
    lm = pair.masked_lm(args.model)
    model = pair.PlainInfoCSE(lm) if side == "plain" else pair.ours(lm, args.precision)
    for seed in (1, 2):
        inputs = batch(lm.config, args.batch, args.length, seed)
        pair.take_step(model, partial(model, **inputs), args.precision)
    return peak_mib()
