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
