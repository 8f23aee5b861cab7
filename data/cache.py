"""A cache of folders. Each is complete or rebuilt, even if several processes build the same one.

A folder lists the sha256 of its files, checked at every use: a cache is read for months, and one
changed byte would be different training data.
"""

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from common.errors import brief, unwritable
from common.files import PARTIAL, hashes, sha256, writing_folder

logger = logging.getLogger(__name__)
_CHECKSUMS = "checksums.json"


def cached(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return `folder`, filled by `make` unless it is intact; BadInput or StorageError if it cannot
    be written.

    A process waits for another one that builds the same folder.
    """
    with _locked(folder):
        if (problem := _problem(folder)) is None:
            return folder
        if folder.exists():
            logger.warning("%s: %s; rebuilding it", folder, problem)
            shutil.rmtree(folder)
        for leftover in folder.parent.glob(f".{folder.name}{PARTIAL}-*"):  # of killed processes
            shutil.rmtree(leftover, ignore_errors=True)
        # A name of its own, for file systems that cannot lock; `tempfile` would let only this user
        # read it.
        partial = folder.with_name(f".{folder.name}{PARTIAL}-{uuid4().hex}")
        with writing_folder(folder, partial):
            make(partial)
            (partial / _CHECKSUMS).write_text(json.dumps(hashes(partial)), encoding="utf-8")
    return folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of the cache, if the file system can lock."""
    cache = folder.parent
    try:
        cache.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(
            cache / f".{folder.name}.lock", os.O_RDONLY | os.O_CREAT, 0o666
        )  # other users read it
    except OSError as error:
        raise unwritable(
            error, f"--cache_dir {cache}: cannot be used as a folder ({error.strerror})"
        ) from error
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _problem(folder: Path) -> str | None:
    """Return why a folder must not be used, or None if its files are unchanged; another user's may be unreadable."""
    try:
        listed = json.loads((folder / _CHECKSUMS).read_bytes())
        changed = [name for name, digest in listed.items() if sha256(folder / name) != digest]
    except PermissionError:
        raise
    except (OSError, ValueError, RecursionError, AttributeError) as error:
        return f"cannot be read ({brief(error)})"
    if not listed:
        return f"{_CHECKSUMS} is damaged"
    return f"{changed[0]} has changed since it was written" if changed else None
