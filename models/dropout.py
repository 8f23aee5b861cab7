"""Dropout whose rate is a random number of the step, the view or the sentence (S-SimCSE, arXiv 2111.11750).

The rates are drawn in the collator and travel in the batch; here they are only applied. `nn.Dropout` modules are
exchanged for ones that read the rates of the forward pass that is running; they have no parameters, so the state dict
stays as it was. A unit is kept with probability 1 - rate and scaled by its own keep rate, so its expectation stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_RATES: ContextVar[Tensor | None] = ContextVar("rates", default=None)


@contextmanager
def rates_of(rates: Tensor | None) -> Iterator[None]:
    """The rates of every row of the activations within; they broadcast to them, NaN where the module's own holds."""
    token = _RATES.set(rates)
    try:
        yield
    finally:
        _RATES.reset(token)


def running_rates() -> Tensor | None:
    """The rates of the forward pass that is running, or None."""
    return _RATES.get()


def drop(x: Tensor, rates: Tensor) -> Tensor:
    """Dropout with rates that broadcast to x."""
    keep = 1 - rates
    return x * (torch.rand(x.shape, device=x.device) < keep) / keep.to(x.dtype)


def attend(
    query: Tensor, key: Tensor, value: Tensor, keys: Tensor | None, rates: Tensor | float, scaling: float
) -> Tensor:
    """Scaled dot-product attention whose weights are dropped, at one rate or at a rate a sentence.

    Queries, keys and values are (B, heads, L, width), `keys` is True where attended to, `rates` (B, 1, 1, 1) or a
    number. On a CPU, torch's own attention has no fast path with dropout and copies more.
    """
    scores = (query * scaling) @ key.transpose(2, 3)
    if keys is not None:
        scores = scores.masked_fill_(~keys, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1, dtype=torch.float32)
    weights = F.dropout(weights, rates) if isinstance(rates, float) else drop(weights, rates)
    return weights.to(value.dtype) @ value


class SampledDropout(nn.Dropout):
    """Dropout with the rates of the running forward pass; plain dropout where none are set."""

    def forward(self, x: Tensor) -> Tensor:
        rates = _RATES.get()
        if rates is None or not self.training:
            return super().forward(x)
        return drop(x, rates.nan_to_num(self.p))


def exchange_dropout(module: nn.Module) -> None:
    """Put a SampledDropout in the place of every `nn.Dropout` below a module."""
    for parent in module.modules():
        for name, child in parent.named_children():
            if type(child) is nn.Dropout:
                setattr(parent, name, SampledDropout(child.p))
