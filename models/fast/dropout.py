"""Dropout that is cheap on a CPU, and dropout with random rates (S-SimCSE, arXiv 2111.11750).

`nn.Dropout` modules are replaced; they have no parameters, so the state dict does not change. On a
CPU torch draws a float per unit and keeps it for the backward pass: an eighth of a training step.
Here a unit takes 16 random bits and keeps one byte. numpy generates the bits, seeded by torch's
generator in each operation, so torch's state is all there is to save.

Sampled rates are drawn in the collator, travel in the batch and are passed as the argument `rates`
to the embeddings and to each layer; here they are only applied. The library's layers do not pass
arguments on to their dropout modules, so a pre-forward hook takes `rates` and sets them on these
modules in every call. Operations are numbered in network order: embeddings, then per layer
attention weights, attention output, feed-forward output; the last axis of the rates has O entries
or one for all. A unit is kept with probability 1 - rate and scaled by its own keep rate, so its
expectation does not change.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

GRAIN = 1 << 16  # rates are rounded to multiples of 1 / GRAIN, and scaled by the rounded rate
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by size in bytes


def on_cpu(x: Tensor) -> bool:
    """Whether to use what is written for speed on a CPU."""
    return x.device.type == "cpu"


def drop(x: Tensor, rates: Tensor | float) -> Tensor:
    """Dropout at one rate, or at rates that broadcast to x."""
    if isinstance(rates, float) and not on_cpu(x):
        return F.dropout(x, rates)
    return _Drop.apply(x, rates)


def _draw(
    shape: torch.Size, rates: Tensor | float, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Draw which units are kept, one byte each, and their scale; a float rate only on a CPU."""
    rates = rates if isinstance(rates, Tensor) else torch.tensor(rates)
    cut = (rates * GRAIN).round().clamp(max=GRAIN - 1)
    least, words = (cut - GRAIN // 2).to(torch.int16), -(-shape.numel() // 4)
    if device.type == "cpu":  # numpy draws twice as fast and compares four times as fast
        seed = int(torch.empty((), dtype=torch.int64).random_())
        bits = np.random.SFC64(seed).random_raw(words).view(np.int16)
        kept = torch.from_numpy(bits[: shape.numel()].reshape(shape) >= least.numpy())
    else:
        draws = torch.empty(words, dtype=torch.int64, device=device).random_(-(1 << 63), None)
        kept = draws.view(torch.int16)[: shape.numel()].view(shape) >= least
    return kept, (GRAIN / (GRAIN - cut)).to(dtype)


def _scaled(x: Tensor, kept: Tensor, scale: Tensor) -> Tensor:
    """The kept units of x times the scale; its bits times 0 or 1, as integers, are faster."""
    bits = _INTEGERS[x.element_size()]
    return kept.view(torch.int8).to(bits).mul_(scale.view(bits)).view(x.dtype).mul_(x)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, rates: Tensor | float) -> Tensor:
        drawn = _draw(x.shape, rates, x.device, x.dtype)
        ctx.save_for_backward(*drawn)
        return _scaled(x, *drawn)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        return _scaled(gradient, *ctx.saved_tensors), None


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keys: Tensor | None,
    rates: Tensor | float | None,
    scaling: float,
) -> Tensor:
    """Scaled dot-product attention with dropout of the weights, or without.

    Queries, keys and values are (B, heads, L, width), `keys` is True where attended to, `rates` (B,
    1, 1, 1), a number or None. On a CPU, torch's attention has no fast path with dropout and copies
    more.
    """
    return _Attend.apply(query, key, value, keys, rates, scaling)


def _weights(query: Tensor, key: Tensor, keys: Tensor | None, scaling: float) -> Tensor:
    weights = (query * scaling) @ key.transpose(2, 3)
    if keys is not None:
        weights.masked_fill_(~keys, torch.finfo(weights.dtype).min)
    return weights.softmax(-1, dtype=weights.dtype)


def backward_is_slow(query: Tensor) -> bool:
    """Whether torch's attention is slower than `attend`: its bfloat16 backward on a CPU, 7-fold."""
    short = query.shape[2] <= 256  # at 512 it is faster
    return query.requires_grad and query.dtype == torch.bfloat16 and short


class _Attend(torch.autograd.Function):
    """Keeps the weights in the dtype of the queries, rounded before dropout, as torch does."""

    @staticmethod
    def forward(ctx, query, key, value, keys, rates, scaling: float) -> Tensor:
        # Or every product copies them.
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        weights = _weights(query, key, keys, scaling)
        drawn = () if rates is None else _draw(weights.shape, rates, weights.device, weights.dtype)
        ctx.save_for_backward(query, key, value, weights, *drawn)
        ctx.scaling = scaling
        return (_scaled(weights, *drawn) if drawn else weights) @ value

    @staticmethod
    def backward(ctx, gradient: Tensor):
        query, key, value, weights, *drawn = ctx.saved_tensors
        gradient = gradient.contiguous()
        d_value = (_scaled(weights, *drawn) if drawn else weights).transpose(2, 3) @ gradient
        d_weights = gradient @ value.transpose(2, 3)
        d_weights = _scaled(d_weights, *drawn) if drawn else d_weights
        d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype).mul_(
            ctx.scaling
        )
        return d_scores @ key, d_scores.transpose(2, 3) @ query, d_value, None, None, None


class Dropout(nn.Dropout):
    """`nn.Dropout` computed by `drop`, at the rates passed to the current call of its part, if any.

    Args:
        p: the rate if none is given, or it is NaN.
        number: the index of this dropout operation in the network.
    """

    def __init__(self, p: float, number: int = 0) -> None:
        super().__init__(p)
        self.number = number
        self.rates: Tensor | None = None  # (rows, tokens or 1, 1, O)

    def of(self, rates: Tensor) -> Tensor:
        """Select this operation's rates, (..., O) or (..., 1) -> (...)."""
        return rates[..., self.number if rates.shape[-1] > 1 else 0].nan_to_num(self.p)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        if self.rates is not None:
            return drop(x, self.of(self.rates))
        return drop(x, float(self.p)) if self.p else x


def lighten_dropout(module: nn.Module) -> int:
    """Replace every `nn.Dropout` below a module by a Dropout; return how many."""
    plain = [part for part in module.named_modules() if type(part[1]) is nn.Dropout]
    for number, (name, child) in enumerate(plain):
        module.set_submodule(name, Dropout(child.p, number))
    return len(plain)


def hand_down(part: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Take `rates` from a part's arguments and set them on its dropout modules; None if absent."""
    rates = kwargs.pop("rates", None)
    for child in part.modules():
        if isinstance(child, Dropout):
            child.rates = rates
    return args, kwargs
