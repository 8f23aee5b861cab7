"""Weights in half precision, for speed; the numbers are those of autocast."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from models.collectives import world_size


def cast_matrices(module: nn.Module, dtype: torch.dtype) -> None:
    """Cast the frozen matrices of a module once, as autocast would in every step.

    Under autocast to that dtype the states are bit-identical: norms, embeddings and sums do not
    change.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear) and not part.weight.requires_grad:
            part.to(dtype)


@contextmanager
def cast_together(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Within this context, linear layers' trained weights are in autocast's dtype.

    On a GPU one kernel casts them. Autocast itself casts each of them, and each gradient back,
    separately: for bert-base 288 kernels per step, which take longer to launch than to run. The
    numbers are the same. Does nothing on a CPU, without autocast, and where

    - several processes average gradients during the backward pass, since they would all come at its
      end;
    - a layer is recomputed, since that would use the current weights, not those cast in the first
      pass.
    """
    device_type = device.type
    casts = (
        device_type != "cpu" and torch.is_autocast_enabled(device_type) and torch.is_grad_enabled()
    )
    recomputed = any(getattr(part, "gradient_checkpointing", False) for part in module.modules())
    if not casts or world_size() > 1 or recomputed:
        yield
        return
    slots, trained = [], []
    for layer in module.modules():
        if not isinstance(layer, nn.Linear) or not layer.weight.requires_grad:
            continue
        for name in ("weight", "bias"):
            value = layer._parameters[name]
            if value is not None and value.dtype == torch.float32:
                slots.append((layer._parameters, name))
                trained.append(value)
    try:
        cast = _Together.apply(torch.get_autocast_dtype(device_type), *trained) if trained else ()
        for (owner, name), value in zip(slots, cast, strict=True):
            owner[name] = value
        yield
    finally:
        for (owner, name), value in zip(slots, trained, strict=True):
            owner[name] = value


class _Together(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        return _copied(tensors, dtype)

    @staticmethod
    def backward(ctx, *gradients: Tensor):
        return None, *_copied(gradients, torch.float32)


def _copied(tensors: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(copies, tensors)
    return tuple(copies)
