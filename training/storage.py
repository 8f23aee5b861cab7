"""What disks and memory do to a run, in plain words."""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn
from transformers import TrainingArguments

from common.errors import DISK, ProjectError, StorageError

# A folder that a run has written to and may no longer: its state is whole, and the same command goes on.
_WORDS = DISK | {errno.EACCES: "no permission", errno.EPERM: "no permission"}
_TORCH_WRITER = re.compile(r"inline_container|PytorchStreamWriter|iostream error")
_CODE = re.compile(r"(?:os error |\[Errno )([0-9]+)")  # safetensors; what `shutil.copytree` gathers
_MEMORY = re.compile(r"out of memory|DefaultCPUAllocator", re.IGNORECASE)
_FILES = 12  # of a checkpoint; of best/ and of the result there are hardly more


@contextmanager
def storage_errors(folder: str | Path) -> Iterator[None]:
    """Turn what the system, torch and safetensors say about a disk into a StorageError; everything else passes.

    Args:
        folder: where the block writes; its file system is asked when an error does not say what is wrong.
    """
    try:
        yield
    except ProjectError:  # says already what it is, and may quote a number that would be taken for a disk's
        raise
    except Exception as error:
        words = _plain(error, Path(folder))
        if words is None:
            raise
        place = getattr(error, "filename", None) or folder
        raise StorageError(
            f"{place}: {words}; what was written whole before is still there. Make room and give the same command"
        ) from error


def _plain(error: Exception, folder: Path) -> str | None:
    if isinstance(error, OSError) and error.errno is not None:
        return _WORDS.get(error.errno)
    code = _CODE.search(str(error))
    if code:
        return _WORDS.get(int(code[1]), os.strerror(int(code[1])))
    if isinstance(error, RuntimeError) and _TORCH_WRITER.search(str(error)):  # which does not say why
        return _WORDS[errno.ENOSPC] if _room(folder) < (1 << 20, 1) else "a file could not be written whole"
    return None


def _room(folder: Path) -> tuple[float, float]:
    """Bytes and files that fit on the file system of a folder that may not exist yet."""
    while not folder.exists():
        folder = folder.parent
    facts = os.statvfs(folder)
    return facts.f_bavail * facts.f_frsize, facts.f_favail if facts.f_files else float("inf")


def steps_of(args: TrainingArguments, count: int) -> int:
    """Optimizer steps of a run over `count` examples, as the Trainer counts: an epoch's last step may be smaller."""
    batches = count // (args.per_device_train_batch_size * args.world_size)
    updates = math.ceil(batches / args.gradient_accumulation_steps)
    return args.max_steps if args.max_steps > 0 else math.ceil(updates * args.num_train_epochs)


def saved_at_once(args: TrainingArguments, steps: int) -> int:
    """The most checkpoints that a run has on its disk at a time: those it keeps, and the next one."""
    every = args.save_steps if args.save_steps >= 1 else args.save_steps * steps
    count = math.ceil(steps / every) if args.save_strategy == "steps" and every else 1
    return min(count, args.save_total_limit + 1) if args.save_total_limit else count


def check_space(folder: str | Path, model: nn.Module, checkpoints: int) -> None:
    """Refuse a run whose checkpoints would not fit, before its first step.

    Args:
        folder: the output folder.
        model: a checkpoint holds its weights, and two numbers more for every one that is trained (Adam); best/ and
            the result hold the weights once each, at most.
        checkpoints: how many more than now will be there at a time.

    Raises:
        StorageError: with the free and the needed room.
    """
    weights = sum(p.numel() * p.element_size() for p in model.state_dict().values())
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    checkpoints = max(checkpoints, 1)
    needed, files = checkpoints * (weights + 2 * trained) + 2 * weights, (checkpoints + 2) * _FILES
    free, names = _room(Path(folder))
    if free < needed or names < files:
        room = f"{free / 1e6:,.1f} MB free" if free < needed else f"room for {names} files"
        raise StorageError(
            f"{folder}: No space left for this run: {room}, it needs about {needed / 1e6:,.1f} MB in {files} files "
            f"({checkpoints} checkpoints, the best model and the result); lower --save_total_limit or make room"
        )


def is_memory_error(error: Exception) -> bool:
    """Whether the memory of the machine or of the GPU is at fault, which torch says by a RuntimeError."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or bool(_MEMORY.search(str(error)))


@contextmanager
def memory_errors(batch: str) -> Iterator[None]:
    """Turn an exhausted memory into a StorageError that names the batch and what makes it smaller.

    The batch is never changed here: its sentences are each other's negatives, so another size is another experiment.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is a RuntimeError
        if not is_memory_error(error):
            raise
        raise StorageError(
            f"out of memory with {batch}: give --chunk_size (same batch, less memory; in stage 1 a smaller batch with "
            "--gradient_accumulation_steps is the same), --bf16, a smaller --max_length or "
            "--per_device_train_batch_size (fewer negatives: another experiment)"
        ) from error
