"""How many positions of a batch are computed, and which.

Only the number must be known to the host. It counts, which on a GPU waits for the device; a step
that must not wait, such as one that becomes a CUDA graph, fixes the numbers beforehand (`fixed`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from data.views import IGNORED

EDGE = 8  # the attention grid has a multiple of this many columns
_TOKENS, _LABELS = 8, 16  # parts of a batch in which fixed numbers are counted


class Shares(NamedTuple):
    """Upper bounds of a batch: eighths with a real token, sixteenths with a label, in any view."""

    tokens: int
    labels: int


_fixed: Shares | None = None


@contextmanager
def fixed(shares: Shares) -> Iterator[None]:
    """Within this context the numbers follow from these shares, and nothing is counted."""
    global _fixed
    before, _fixed = _fixed, shares
    try:
        yield
    finally:
        _fixed = before


def shares_of(inputs: Mapping[str, Tensor]) -> Shares:
    """The shares of a batch in host memory, as it comes from the collator."""
    masks = [value for name, value in inputs.items() if name.endswith("attention_mask")]
    labels = [value != IGNORED for name, value in inputs.items() if name.endswith("_labels")]
    if "target_attention_mask" in inputs:  # each of its tokens is a label
        labels.append(inputs["target_attention_mask"])
    marked = [(part, _TOKENS) for part in masks] + [(part, _LABELS) for part in labels]
    counts = torch.stack([part.flatten(1).sum(1).max() for part, _ in marked]).tolist()
    parts = [
        -(-count * share // part[0].numel())
        for count, (part, share) in zip(counts, marked, strict=True)
    ]
    return Shares(max(parts[: len(masks)]), max(parts[len(masks) :], default=0))


def fixed_number(size: int, labels: bool = False) -> int | None:
    """How many of `size` positions have a real token, or a label, at most; None if not fixed."""
    if _fixed is None:
        return None
    share, parts = (_fixed.labels, _LABELS) if labels else (_fixed.tokens, _TOKENS)
    return -(-size * max(share, 1) // parts)


def filled(count: int) -> int:
    """Round `count` up by at most a sixteenth, to one of sixteen values between two powers of two.

    oneDNN caches a primitive for every shape: with a new number of tokens in every step, bfloat16
    training on a CPU would grow by tens of megabytes per step.
    """
    return up(max(count, 1), max(EDGE, 1 << max(0, count.bit_length() - 5)))


def up(count: int, step: int) -> int:
    """Round up to a multiple of `step`."""
    return -(-count // step) * step


def places(rank: Tensor, count: int) -> Tensor:
    """The `count` positions of lowest rank, (size,) -> (count,); the first of equals; ascending."""
    return rank.to(torch.uint8).argsort(stable=True)[:count].sort().values
