"""Where float32 matters, and where weights become less: similarities and sums of losses are never in half precision."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def at_least_float32(x: Tensor) -> Tensor:
    """Half-precision numbers in float32; float32 and float64 as they are."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def cast_matrices(frozen: nn.Module, dtype: torch.dtype) -> None:
    """Keep the matrices of what never learns in the type to which autocast would cast them in every step.

    Under autocast to that type the states stay the same to the bit: norms, embeddings and sums are not touched.
    """
    for part in frozen.modules():
        if isinstance(part, nn.Linear):
            part.to(dtype)


@contextmanager
def cast_together(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Within, the learning matrices and biases of linear layers are in autocast's type, by one kernel on a GPU.

    Autocast itself casts each of them alone, and each of their gradients back: of bert-base 288 kernels a step, which
    a GPU spends more time to start than to run. The numbers are the same. On a CPU, and in a compiled step, nothing.
    """
    kind = device.type
    if kind == "cpu" or not (torch.is_autocast_enabled(kind) and torch.is_grad_enabled()):
        yield
        return
    layers = [part for part in module.modules() if isinstance(part, nn.Linear) and part.weight.requires_grad]
    places = [(layer._parameters, name) for layer in layers for name in ("weight", "bias")]
    places = [(held, name) for held, name in places if held[name] is not None and held[name].dtype == torch.float32]
    learned = [held[name] for held, name in places]
    try:
        cast = _Together.apply(torch.get_autocast_dtype(kind), *learned) if learned else ()
        for (held, name), value in zip(places, cast, strict=True):
            held[name] = value
        yield
    finally:
        for (held, name), value in zip(places, learned, strict=True):
            held[name] = value


class _Together(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        return _copied(tensors, dtype)

    @staticmethod
    def backward(ctx, *gradients: Tensor):
        return None, *_copied(gradients, torch.float32)


def _copied(tensors: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    made = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(made, tensors)
    return tuple(made)
