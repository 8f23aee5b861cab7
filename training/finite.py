"""Nothing that is not a finite number goes unnoticed, or to the disk."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

REPORT = "nonfinite.json"


class FirstBad:
    """The first optimizer step at which a number was not finite, kept on the device.

    `note` never waits for the device; `step` does. On CPU, where there is nothing to wait for, look in every step.
    """

    def __init__(self, device: torch.device) -> None:
        self._step = torch.zeros((), dtype=torch.long, device=device)

    @torch.no_grad()
    def note(self, step: int, numbers: Iterable[Tensor]) -> None:
        """Look at the scalars of a step, steps counted from 1."""
        if self._step.device.type == "cpu":  # nothing to wait for, and tensors cost ten times as much as numbers
            if not self._step and not all(map(math.isfinite, map(float, numbers))):
                self._step.fill_(step)
            return
        bad = ~torch.stack([number.detach().float() for number in numbers]).isfinite().all()
        self._step = torch.where((self._step == 0) & bad, step, self._step)

    @property
    def step(self) -> int:
        """The first bad step so far, 0 when there is none."""
        return int(self._step)


@torch.no_grad()
def not_finite(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> str | None:
    """Name of a weight or optimizer state that is not finite, or None; waits for the device once."""
    named = dict(model.state_dict())
    for number, state in enumerate(optimizer.state.values() if optimizer is not None else []):
        named |= {f"{name} of optimizer state {number}": value for name, value in state.items()}
    named = {n: t for n, t in named.items() if isinstance(t, Tensor) and t.is_floating_point() and t.numel()}
    flags = [tensor.isfinite().all().to("cpu", non_blocking=True) for tensor in named.values()]
    if any(tensor.is_cuda for tensor in named.values()):
        torch.cuda.synchronize()
    return next((name for name, fine in zip(named, flags, strict=True) if not fine), None)


class Found(NamedTuple):
    """What is known about a step whose numbers are not finite.

    Attributes:
        step: the first such optimizer step, counted from 1.
        norm: its gradient norm, where it was looked at in the step itself.
        terms: sums of the loss terms since the last logged line.
        examples: indices of the step's examples, of all processes.
    """

    step: int
    norm: float | None
    terms: dict[str, float]
    examples: list[int]

    def write(self, folder: Path) -> None:
        """Leave everything in `nonfinite.json`."""
        terms = {name: str(value) for name, value in self.terms.items()}  # JSON has no NaN
        content = self._asdict() | {"norm": str(self.norm), "terms": terms}
        (folder / REPORT).write_text(json.dumps(content) + "\n", encoding="utf-8")

    def message(self) -> str:
        """One line."""
        wrong = [f"{name} {value}" for name, value in sorted(self.terms.items()) if not math.isfinite(value)]
        shown = ", ".join(map(str, self.examples[:8]))
        return (
            f"not finite at step {self.step}: {', '.join(wrong) or f'gradient norm {self.norm}'}; examples {shown} ... "
            f"(all in {REPORT}); nothing of it is saved: lower --learning_rate, or --bf16 off"
        )
