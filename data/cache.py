"""A cache of folders. Each is complete or rebuilt, even if several processes build the same one.

A folder lists the sha256 of its files, checked at every use: a cache is read for months, and one changed byte would be
different training data. Whoever fills a folder holds a shared lock on the cache, so a command that gets the exclusive
lock may remove leftovers of killed ones.
"""

import errno
import fcntl
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from common.errors import unwritable
from common.files import PARTIAL, hashes, sha256, writing_folder

logger = logging.getLogger(__name__)
_CHECKSUMS = "checksums.json"


def cached(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return `folder`, filled by `make` unless it is intact; BadInput or StorageError if it cannot be written."""
    with _in_use(folder.parent):
        if (problem := _problem(folder)) is not None:
            if folder.exists():
                logger.warning("%s: %s; rebuilding it", folder, problem)
            _fill(folder, make)
    return folder


@contextmanager
def _in_use(cache: Path) -> Iterator[None]:
    """Hold a shared lock on the cache; if an exclusive one is free first, remove leftovers of killed processes."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(cache, os.O_RDONLY)
    except OSError as error:
        raise _unusable(cache, error) from error
    try:
        with suppress(OSError):  # another process is at work, or the file system cannot lock folders: leftovers stay
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for leftover in cache.glob(f"{PARTIAL}-*"):
                shutil.rmtree(leftover, ignore_errors=True)
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _problem(folder: Path) -> str | None:
    """Return why a folder must not be used, or None if its files are unchanged.

    BadInput if this user may not read it: another user's folder, which stays as it is.
    """
    try:
        listed = json.loads((folder / _CHECKSUMS).read_bytes())
        changed = [name for name, digest in listed.items() if sha256(folder / name) != digest]
    except PermissionError as error:
        problem = f"--cache_dir {folder.parent}: {folder.name} is another user's and cannot be read ({error.strerror})"
        raise unwritable(error, f"{problem}; choose another") from error
    except OSError as error:
        return f"{Path(error.filename or folder).name} cannot be read ({error.strerror})"
    except (ValueError, RecursionError, AttributeError):
        listed = changed = None
    if not listed:
        return f"{_CHECKSUMS} is damaged"
    return f"{changed[0]} has changed since it was written" if changed else None


def _fill(folder: Path, make: Callable[[Path], None]) -> None:
    partial = folder.with_name(f"{PARTIAL}-{uuid4().hex}")  # `tempfile` would let only this user read it
    try:
        partial.mkdir()
    except OSError as error:
        raise _unusable(folder.parent, error) from error
    with writing_folder(folder, partial, _place):
        make(partial)
        (partial / _CHECKSUMS).write_text(json.dumps(hashes(partial)), encoding="utf-8")


def _place(partial: Path, folder: Path) -> None:
    """Rename a filled folder, unless another process was faster and its folder is intact."""
    replaced = partial.with_name(f"{partial.name}.replaced")
    while True:
        try:
            partial.rename(folder)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if _problem(folder) is None:
            return
        with suppress(FileNotFoundError):  # another process has moved it
            folder.rename(replaced)
        shutil.rmtree(replaced, ignore_errors=True)


def _unusable(cache: Path, error: OSError) -> Exception:
    return unwritable(error, f"--cache_dir {cache}: cannot be used as a folder ({error.strerror})")
