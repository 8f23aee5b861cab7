"""Activations that are recomputed in the backward pass, on a CPU, instead of saved.

The feed-forward of a transformer layer saves the input and the output of its activation, each four times as wide as the
states: nearly half of what a layer saves. The output follows from the input at the cost of one GELU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from models.fast.kernels import on_cpu

_LAST: ContextVar[list | None] = ContextVar("last", default=None)


class Recomputed(nn.Module):
    """An element-wise activation whose output is not saved if only the next module would save it."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        output, last = self.activation(x), _LAST.get() if on_cpu(x) else None
        if last is not None:
            last[:] = [(output, x, self.activation)]  # keeps `output` alive, so that no other tensor gets its address
        return output


@contextmanager
def recomputing(device: torch.device) -> Iterator[None]:
    """Within this context, no Recomputed saves its output."""
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
    """Replace every feed-forward activation of the libraries below a module by a Recomputed.

    A model's own activation may take and return more than one tensor (I-BERT's does).
    """
    for child in list(module.modules()):
        activation = getattr(child, "intermediate_act_fn", None)
        if type(activation).__module__ in ("torch.nn.modules.activation", "transformers.activations"):
            child.intermediate_act_fn = Recomputed(activation)
