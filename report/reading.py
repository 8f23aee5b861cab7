"""Whether the auxiliary network reads the sentence vector.

The gap tells: its loss where each sentence gets its neighbour's [CLS], less its loss with the sentence's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

OWN, OTHER = "eval_aux_mlm", "eval_aux_mlm_shuffled_cls"
CLEAR = 0.3  # nats a masked token; below it the vector hardly helps


class Look(NamedTuple):
    """The auxiliary losses at one evaluation, in nats a token; `tokens` seen so far, None in logs without them."""

    step: int
    tokens: int | None
    own: float
    other: float

    @property
    def gap(self) -> float:
        return self.other - self.own


def looks(history: Sequence[dict[str, Any]]) -> list[Look]:
    """Every evaluation in a Trainer's log history that has both losses."""
    return [
        Look(line["step"], line.get("tokens"), line[OWN], line[OTHER])
        for line in history
        if OWN in line and OTHER in line
    ]


def in_words(history: Sequence[dict[str, Any]]) -> str | None:
    """What the gaps of a run mean; None for a run without an auxiliary network."""
    found = looks(history)
    if not found:
        return None
    last = found[-1]
    losses = f"loss {last.own:.3f} with the own [CLS], {last.other:.3f} with a neighbour's"
    if not last.gap >= CLEAR:  # so that NaN is not clear
        return (
            f"the auxiliary network hardly reads the sentence vector ({losses}): expect what the contrastive loss gives"
        )
    first = next(look for look in found if look.gap >= CLEAR)
    after = f" ({first.tokens:,} tokens)" if first.tokens else ""
    return f"the auxiliary network reads the sentence vector ({losses}), clearly from step {first.step}{after} on"
