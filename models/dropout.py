"""Dropout whose rate is a random number of the step, the view, the sentence or the place (S-SimCSE, arXiv 2111.11750).

The rates are drawn in the collator and travel in the batch; here they are only applied. `nn.Dropout` modules are
exchanged for ones that read the rates of the forward pass that is running; they have no parameters, so the state dict
stays as it was. They are numbered in the order of the network: embeddings, then of every layer attention weights,
attention output, feed-forward output; rates have O of them on their last axis, or one for all. A unit is kept with
probability 1 - rate and scaled by its own keep rate, so its expectation stays.
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
    """Rates for the activations within: (rows, tokens, 1, O), of which one O broadcasts to them; NaN: the module's."""
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
    """Dropout with the rates of the running forward pass; plain dropout where none are set.

    Args:
        p: the rate where none is set.
        number: which of a network's dropout operations this is.
    """

    def __init__(self, p: float, number: int) -> None:
        super().__init__(p)
        self.number = number

    def of(self, rates: Tensor) -> Tensor:
        """This operation's rates among those of all, (..., O) or (..., 1) -> (...)."""
        return rates[..., self.number if rates.shape[-1] > 1 else 0].nan_to_num(self.p)

    def forward(self, x: Tensor) -> Tensor:
        rates = _RATES.get()
        if rates is None or not self.training:
            return super().forward(x)
        return drop(x, self.of(rates))


def exchange_dropout(module: nn.Module) -> None:
    """Put a SampledDropout in the place of every `nn.Dropout` below a module."""
    plain = [name for name, child in module.named_modules() if type(child) is nn.Dropout]
    for number, name in enumerate(plain):
        module.set_submodule(name, SampledDropout(module.get_submodule(name).p, number))


def count_operations(module: nn.Module) -> int:
    """How many dropout operations of a module take their rates from the batch."""
    return sum(isinstance(child, SampledDropout) for child in module.modules())
