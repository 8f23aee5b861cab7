import errno
import os
import re
import shutil
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from common.errors import StorageError
from training import faults
from training.faults import check_space, memory_errors, storage_errors
from training.run_arguments import saved_at_once


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "x", "/runs/log.jsonl"), "/runs/log.jsonl: No space left"),
        (OSError(errno.EDQUOT, "x"), "No space left: the disk quota"),
        (OSError(errno.EROFS, "x"), "read-only"),
        (Exception("I/O error: File too large (os error 27)"), "ulimit -f"),
        (Exception("I/O error: No space left on device (os error 28)"), "No space left"),
        (shutil.Error([("best/a", "x/a", "[Errno 30] Read-only file system")]), "read-only"),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"), "written whole"),
    ],
)
def test_a_failing_disk_is_said_in_plain_words(tmp_path, error, words):
    with pytest.raises(StorageError, match=re.escape(words)) as caught, storage_errors(tmp_path):
        raise error
    assert "\n" not in str(caught.value)


def test_torch_does_not_say_that_a_disk_is_full_so_the_disk_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(faults, "_room", lambda folder: (4096, 10))
    with pytest.raises(StorageError, match="No space left"), storage_errors(tmp_path):
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")


@pytest.mark.parametrize("error", [ValueError("x"), RuntimeError("shapes"), FileNotFoundError(errno.ENOENT, "x")])
def test_other_errors_pass(tmp_path, error):
    with pytest.raises(type(error)) as caught, storage_errors(tmp_path):
        raise error
    assert caught.value is error


def test_the_room_a_run_needs_is_asked_for_before_it_starts(tmp_path, monkeypatch):
    """1000 trained and 500 frozen numbers: 4 x 1500 + 8 x 1000 bytes a checkpoint, and 2 x 6000 for best and result."""
    model = nn.ModuleList([nn.Linear(1000, 1, bias=False), nn.Linear(500, 1, bias=False)])
    model[1].requires_grad_(False)
    needed = 3 * (6000 + 8000) + 2 * 6000
    facts = {"f_frsize": 1, "f_files": 100, "f_favail": 1000}
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=needed, **facts))
    check_space(tmp_path / "new" / "run", model, 3)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=needed - 1, **facts))
    with pytest.raises(StorageError, match=r"No space left for this run.*3 checkpoints.*--save_total_limit"):
        check_space(tmp_path, model, 3)
    facts["f_favail"] = 20
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=needed, **facts))
    with pytest.raises(StorageError, match="room for 20 files"):
        check_space(tmp_path, model, 3)


@pytest.mark.parametrize(
    ("save_steps", "limit", "strategy", "count"),
    [(100, 2, "steps", 3), (100, None, "steps", 10), (400, 5, "steps", 3), (0.25, None, "steps", 4), (9, 2, "no", 1)],
)
def test_the_checkpoints_that_are_there_at_a_time(save_steps, limit, strategy, count):
    args = SimpleNamespace(save_steps=save_steps, save_total_limit=limit, save_strategy=strategy)
    assert saved_at_once(args, 1000) == count


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] . DefaultCPUAllocator: can't allocate memory: you tried"),
        MemoryError(),
    ],
)
def test_too_little_memory_names_the_batch_and_what_helps(error):
    with pytest.raises(StorageError, match=r"with a batch of 64.*--chunk_size.*--bf16"), memory_errors("a batch of 64"):
        raise error
    with pytest.raises(RuntimeError, match="shapes"), memory_errors("a batch of 64"):
        raise RuntimeError("shapes")
