"""One run a folder: a lock that shows its owner and vanishes with it."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from common.errors import CheckpointRefused
from training.checkpoint import LOCK_FILE

logger = logging.getLogger(__name__)


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Own a folder while the block runs; one that is made for it and stays empty is removed again.

    The lock is a record lock of the operating system: it ends with its process however that ends, and worker
    processes do not inherit it.

    Raises:
        CheckpointRefused: another process owns the folder, with its pid, host and start.
    """
    root = Path(folder)
    existed = root.exists()
    root.mkdir(parents=True, exist_ok=True)
    path = root / LOCK_FILE
    descriptor = _acquire(path)
    try:
        yield
    finally:
        with suppress(OSError):  # what ended the block is what matters
            path.unlink()
        os.close(descriptor)
        if not existed:
            with suppress(OSError):
                root.rmdir()


def _acquire(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:  # what record locks answer, by system
            owner = os.read(descriptor, 4096).decode(errors="replace")
            os.close(descriptor)
            raise CheckpointRefused(f"{path.parent}: another command is at work there ({_words(owner)})") from error
        if _is(path, descriptor):
            break
        os.close(descriptor)  # its last owner removed the file between our open and our lock
    before = os.read(descriptor, 4096).decode(errors="replace")
    if before:
        logger.warning("%s: taken over from a command that has ended (%s)", path.parent, _words(before))
    os.ftruncate(descriptor, 0)
    mine = {"pid": os.getpid(), "host": socket.gethostname(), "started": time.strftime("%Y-%m-%d %H:%M:%S")}
    os.pwrite(descriptor, json.dumps(mine).encode(), 0)
    return descriptor


def _is(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _words(owner: str) -> str:
    try:
        found = json.loads(owner)
        return f"pid {found['pid']} on {found['host']}, started {found['started']}"
    except (ValueError, RecursionError, KeyError, TypeError):
        return "owner unknown"
