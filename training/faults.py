"""Faults that end a run: storage, memory and non-finite numbers, as one-line errors."""

from __future__ import annotations

import errno
import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from common.errors import DISK, ProjectError, StorageError

# Losing write permission during a run leaves its state intact, so the same command can resume.
_DENIED = "no permission"
_MESSAGES = DISK | {errno.EACCES: _DENIED, errno.EPERM: _DENIED}
_TORCH_WRITER = re.compile(r"inline_container|PytorchStreamWriter|iostream error")
_CODE = re.compile(r"(?:os error |\[Errno )([0-9]+)")  # of safetensors; of `shutil.copytree`
_MEMORY = re.compile(r"out of memory|DefaultCPUAllocator", re.IGNORECASE)
_FILES = 12  # per checkpoint; best/ and the result have about as many
REPORT = "nonfinite.json"


@contextmanager
def storage_errors(folder: str | Path) -> Iterator[None]:
    """Turn disk errors of the system, torch and safetensors into a StorageError; other errors pass.

    Args:
        folder: where the block writes; its free space is checked when an error gives no cause.
    """
    try:
        yield
    except ProjectError:  # its message may contain a number that looks like an error code
        raise
    except Exception as error:
        message = _storage_message(error, Path(folder))
        if message is None:
            raise
        place = getattr(error, "filename", None) or folder
        remedy = "Make the folder writable" if message == _DENIED else "Free some space"
        raise StorageError(
            f"{place}: {message}; everything saved before is intact. {remedy} and repeat the command"
        ) from error


def _storage_message(error: Exception, folder: Path) -> str | None:
    if isinstance(error, OSError) and error.errno is not None:
        return _MESSAGES.get(error.errno)
    code = _CODE.search(str(error))
    if code:
        return _MESSAGES.get(int(code[1]), os.strerror(int(code[1])))
    if isinstance(error, RuntimeError) and _TORCH_WRITER.search(str(error)):  # which gives no cause
        return _MESSAGES[errno.ENOSPC] if _room(folder) < (1 << 20, 1) else "a file could not be written completely"
    return None


def _room(folder: Path) -> tuple[float, float]:
    """Free bytes and files on the file system of a folder that may not exist yet."""
    while not folder.exists():
        folder = folder.parent
    facts = os.statvfs(folder)
    return facts.f_bavail * facts.f_frsize, facts.f_favail if facts.f_files else float("inf")


def check_space(folder: str | Path, model: nn.Module, checkpoints: int) -> None:
    """Refuse a run whose checkpoints would not fit, before its first step.

    Args:
        folder: the output folder.
        model: a checkpoint contains its weights, and two more numbers per trained weight (Adam); best/ and the result
            contain the weights once each.
        checkpoints: how many will exist at a time, in addition to the present ones.

    Raises:
        StorageError: too little space; the message gives the free and the required amount.
    """
    weights = sum(p.numel() * p.element_size() for p in model.state_dict().values())
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    checkpoints = max(checkpoints, 1)
    needed, files = checkpoints * (weights + 2 * trained) + 2 * weights, (checkpoints + 2) * _FILES
    free, names = _room(Path(folder))
    if free < needed or names < files:
        room = f"{free / 1e6:,.1f} MB free" if free < needed else f"room for {names} files"
        raise StorageError(
            f"{folder}: No space left for this run: {room}, but it needs about {needed / 1e6:,.1f} MB in {files} files "
            f"({checkpoints} checkpoints, the best model and the result); lower --save_total_limit or free some space"
        )


def is_memory_error(error: Exception) -> bool:
    """Whether the machine or the GPU ran out of memory, for which torch may raise RuntimeError."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or bool(_MEMORY.search(str(error)))


@contextmanager
def memory_errors(batch: str) -> Iterator[None]:
    """Turn an out-of-memory error into a StorageError that names the batch and the flags that save memory.

    The batch size is never changed automatically: the sentences of a batch are each other's negatives.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is a RuntimeError
        if not is_memory_error(error):
            raise
        raise StorageError(
            f"out of memory with {batch}: give --chunk_size (same batch, less memory; in stage 1, a smaller batch with "
            "--gradient_accumulation_steps is equivalent), --bf16, a smaller --max_length or "
            "--per_device_train_batch_size (fewer negatives: a different experiment)"
        ) from error


class FirstBad:
    """The first optimizer step with a non-finite number, kept on the device.

    `note` does not synchronize with the device; `step` does. On a CPU it is free, so read it after every step.
    """

    def __init__(self, device: torch.device) -> None:
        self._step = torch.zeros((), dtype=torch.long, device=device)

    @torch.no_grad()
    def note(self, step: int, numbers: Iterable[Tensor]) -> None:
        """Check the scalars of a step; steps count from 1."""
        if self._step.device.type == "cpu":  # plain floats are ten times as fast as tensors
            if not self._step and not all(map(math.isfinite, map(float, numbers))):
                self._step.fill_(step)
            return
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
    named = {n: t for n, t in named.items() if isinstance(t, Tensor) and t.is_floating_point() and t.numel()}
    flags = [tensor.isfinite().all().to("cpu", non_blocking=True) for tensor in named.values()]
    if any(tensor.is_cuda for tensor in named.values()):
        torch.cuda.synchronize()
    return next((name for name, finite in zip(named, flags, strict=True) if not finite), None)


class NonFiniteStep(NamedTuple):
    """Diagnostics of an optimizer step with non-finite numbers.

    Attributes:
        step: the first bad step, counted from 1.
        norm: its gradient norm; None if the step was checked later.
        terms: sums of the loss terms since the last logged line.
        examples: indices of the step's examples over all processes.
    """

    step: int
    norm: float | None
    terms: dict[str, float]
    examples: list[int]

    def write(self, folder: Path) -> None:
        """Write `nonfinite.json`."""
        terms = {name: str(value) for name, value in self.terms.items()}  # JSON has no NaN
        content = self._asdict() | {"norm": str(self.norm), "terms": terms}
        (folder / REPORT).write_text(json.dumps(content) + "\n", encoding="utf-8")

    def message(self) -> str:
        wrong = [f"{name} {value}" for name, value in sorted(self.terms.items()) if not math.isfinite(value)]
        shown = ", ".join(map(str, self.examples[:8]))
        return (
            f"not finite at step {self.step}: {', '.join(wrong) or f'gradient norm {self.norm}'}; examples {shown} ... "
            f"(all in {REPORT}); this step was not saved: lower --learning_rate, or raise --temperature if it is small"
        )
