"""Activations that are computed again in the backward pass, on a CPU, rather than kept.

The feed-forward of a transformer layer keeps what goes into its activation and what comes out, each four times as wide
as the states: nearly half of what a layer keeps. The second follows from the first at the price of one GELU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from models.kernels.device import on_cpu

_LAST: ContextVar[list | None] = ContextVar("last", default=None)


class Recomputed(nn.Module):
    """An element-wise activation whose output, where the next module alone keeps it, is not kept."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        made, last = self.activation(x), _LAST.get() if on_cpu(x) else None
        if last is not None:
            last[:] = [(made, x, self.activation)]  # holds `made`, so that no other tensor takes its address
        return made


@contextmanager
def recomputing(device: torch.device) -> Iterator[None]:
    """A forward pass within which every Recomputed spares its output."""
    if device.type != "cpu" or torch.compiler.is_compiling():
        yield
        return
    last: list = []

    def pack(kept: Tensor):
        if last and last[0][0].data_ptr() == kept.data_ptr() and last[0][0].numel() == kept.numel():
            _, x, activation = last.pop()
            return activation, x.detach(), kept.shape
        return kept

    def unpack(kept) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        activation, x, shape = kept
        with torch.no_grad():
            return activation(x).view(shape)

    token = _LAST.set(last)
    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield
    finally:
        _LAST.reset(token)


def exchange_activations(module: nn.Module) -> None:
    """Put a Recomputed in the place of every activation of a feed-forward below a module."""
    for child in list(module.modules()):
        activation = getattr(child, "intermediate_act_fn", None)
        if isinstance(activation, nn.Module) and not isinstance(activation, Recomputed):
            child.intermediate_act_fn = Recomputed(activation)
