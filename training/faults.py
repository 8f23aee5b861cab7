"""Numbers that are not finite and so end a run."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class FirstBad:
    """The first optimizer step with a non-finite number, kept on the device.

    `note` does not synchronize with the device; `step` does. On a CPU it is free, so read it after
    every step.
    """

    def __init__(self, device: torch.device) -> None:
        self._step = torch.zeros((), dtype=torch.long, device=device)

    @torch.no_grad()
    def note(self, step: int, numbers: Iterable[Tensor]) -> None:
        """Check the scalars of a step; steps count from 1."""
        bad = ~torch.stack([number.detach().float() for number in numbers]).isfinite().all()
        self._step = torch.where((self._step == 0) & bad, step, self._step)

    @property
    def step(self) -> int:
        """The first bad step so far; 0 if none."""
        return int(self._step)


@torch.no_grad()
def not_finite(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> str | None:
    """Name of a weight or optimizer state that is not finite, or None; synchronizes with the device once."""
    named = dict(model.state_dict())
    for number, state in enumerate(optimizer.state.values() if optimizer is not None else []):
        named |= {f"{name} of optimizer state {number}": value for name, value in state.items()}
    named = {
        n: t
        for n, t in named.items()
        if isinstance(t, Tensor) and t.is_floating_point() and t.numel()
    }
    flags = [tensor.isfinite().all().to("cpu", non_blocking=True) for tensor in named.values()]
    if any(tensor.is_cuda for tensor in named.values()):
        torch.cuda.synchronize()
    return next((name for name, finite in zip(named, flags, strict=True) if not finite), None)
