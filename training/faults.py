"""Numbers that are not finite and so end a run."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.no_grad()
def not_finite(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> str | None:
    """Name of a weight or optimizer state that is not finite, or None.

    Synchronizes with the device once.
    """
    named = dict(model.state_dict())
    if optimizer is not None:
        for number, state in enumerate(optimizer.state.values()):
            named |= {f"{name} of optimizer state {number}": value for name, value in state.items()}
    finite = {}
    for name, value in named.items():
        if isinstance(value, Tensor) and value.is_floating_point() and value.numel():
            finite[name] = value.isfinite().all().to("cpu", non_blocking=True)
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return next((name for name, flag in finite.items() if not flag), None)
