"""Faults that end a run with one line: storage and non-finite numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from common.errors import DISK, ProjectError, StorageError

_TORCH_WRITER = re.compile(r"inline_container|PytorchStreamWriter|iostream error")
_CODE = re.compile(r"(?:os error |\[Errno )([0-9]+)")  # of safetensors; of `shutil.copytree`


@contextmanager
def storage_errors(folder: str | Path) -> Iterator[None]:
    """Turn disk errors of the system, torch and safetensors into a StorageError; other errors pass.

    Args:
        folder: where the block writes; named when the error names no file.
    """
    try:
        yield
    except ProjectError:  # its message may contain a number that looks like an error code
        raise
    except Exception as error:
        message = _storage_message(error)
        if message is None:
            raise
        path = getattr(error, "filename", None) or folder
        advice = "everything saved before is intact. Free some space and repeat the command"
        raise StorageError(f"{path}: {message}; {advice}") from error


def _storage_message(error: Exception) -> str | None:
    if isinstance(error, OSError) and error.errno is not None:
        return DISK.get(error.errno)
    if code := _CODE.search(str(error)):
        return DISK.get(int(code[1]))
    if isinstance(error, RuntimeError) and _TORCH_WRITER.search(str(error)):  # which gives no cause
        return "a file could not be written completely; is there no space left?"
    return None


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
