"""Similarities and sums of losses are never in half precision."""

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Convert half precision to float32; leave float32 and float64."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
