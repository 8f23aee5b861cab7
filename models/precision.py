"""Where float32 matters: similarities, log-softmax and sums of losses are never computed in less."""

from __future__ import annotations

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
