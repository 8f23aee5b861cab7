"""Folders that are complete or absent, whatever happens to the process or the disk.

A folder is filled under a hidden name of its process alone. Its manifest lists the files with size
and sha256 and says what they are; everything is flushed, and one rename puts the folder in its
place. So a folder under its final name was written to its end, and a reader can tell whether it
still is what was written. Hidden files and README.md, which people edit, are not listed, and other
files beside the listed ones do not matter.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any
from uuid import uuid4

from common.errors import (
    BadInput,
    CheckpointRefused,
    FolderInUse,
    ProjectError,
    newer_format,
    storage_errors,
)
from common.files import digest, files_in, read_json, sha256, sync, writable

logger = logging.getLogger(__name__)
MANIFEST = "infocse.json"
FORMAT = 1
SMALL = 2**26  # bytes; see `problem`
Facts = dict[str, Any]  # JSON values
_PARTIAL = ".infocse-partial"  # in the name of a folder that is being filled
_held: dict[Path, int] = {}  # lock file -> the process that holds it: forked ones do not


@contextmanager
def filling(target: Path, facts: Facts | None = None, replace: bool = False) -> Iterator[Path]:
    """A new folder to fill; if the block succeeds, it becomes `target`, otherwise it is removed.

    Args:
        target: absent or empty unless `replace`.
        facts: for the manifest, read when the block ends.
        replace: what is in the place of the folder is removed, except files that others have put
            into a folder of ours; a link is not followed.

    Raises:
        BadInput: the target exists, or cannot be written.
        CheckpointRefused: another command is writing it.
        StorageError: the disk is full or failing.
    """
    target = target.parent.resolve() / target.name if replace else target.resolve()
    folder = target.with_name(f".{target.name}{_PARTIAL}-{os.getpid()}-{uuid4().hex[:8]}")
    with ExitStack() as stack:
        stack.enter_context(locked(target))
        if not replace:
            refuse_existing(target)
        with writable(target):
            recover(target)
            folder.mkdir()
        stack.callback(remove, folder)
        stack.enter_context(storage_errors(target.parent))
        yield folder
        with writable(target):
            commit(folder, target, facts or {}, replace)


def refuse_existing(folder: Path) -> None:
    """Raise BadInput if there is something other than an empty folder."""
    if folder.exists() and not (folder.is_dir() and next(folder.iterdir(), None) is None):
        raise BadInput(f"{folder}: exists already; remove it, or choose another folder")


def commit(folder: Path, target: Path, facts: Facts, replace: bool = True) -> None:
    """Write the manifest of a filled folder, flush everything, and rename it to `target`."""
    seal(folder, facts)
    if replace and (target.is_symlink() or target.is_file()):
        target.unlink()
    elif replace and target.exists():
        _keep_others(target, folder)
        target.rename(_replaced(target))
    try:
        folder.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # where the system has no locks
            raise CheckpointRefused(f"{target}: written by another command") from error
        raise
    sync(target.parent)
    remove(_replaced(target))


def _keep_others(old: Path, new: Path) -> None:
    """Copy what people have put beside the files of a folder that is to be replaced."""
    try:
        written = {MANIFEST, *read_manifest(old)["files"]}
    except ValueError:
        return
    for name, path in files_in(old).items():
        if name not in written and not (new / name).exists():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, new / name)
            sync(new / name)


def seal(folder: Path, facts: Facts) -> None:
    """Write the manifest of a folder, its files as they are and facts about them; flush it all."""
    files = {}
    for name, path in files_in(folder).items():
        if name not in (MANIFEST, "README.md"):
            files[name] = [path.stat().st_size, sha256(path)]
    content = {"format": FORMAT, "facts": facts, "files": files}
    text = json.dumps(content | {"sha256": digest(content)}, indent=2)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() or path.is_file():
            sync(path)


def recover(target: Path) -> None:
    """Remove what killed writers left, and bring back what one had moved away to replace it.

    The caller holds the lock.
    """
    if _replaced(target).exists() and not target.exists():
        _replaced(target).rename(target)
    remove(_replaced(target))
    for leftover in target.parent.glob(f".{escape(target.name)}{_PARTIAL}*"):
        if f"{_PARTIAL}-{os.getpid()}-" not in leftover.name:
            remove(leftover)


def standing(target: Path) -> Path:
    """The folder itself or, if a writer has moved it away to replace it, where it is now."""
    moved = _replaced(target.resolve())
    return moved if moved.exists() and not target.exists() else target


def _replaced(target: Path) -> Path:
    return target.with_name(f".{target.name}.replaced")


def remove(folder: Path) -> None:
    """Delete a folder that this project has written, if it exists; never follow a link."""
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The `facts` and `files` of a folder; ValueError, in a few words, if it has no manifest."""
    path = folder / MANIFEST
    if wrong := _unreadable(path):
        raise ValueError(f"{MANIFEST} {wrong}")
    try:
        content = read_json(path, "a manifest", error=ValueError, fields={"format": int})
        expected = content.pop("sha256", None)
        intact = digest(content) == expected
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{MANIFEST} is damaged") from error
    if content["format"] > FORMAT:
        raise ValueError(newer_format(MANIFEST, content["format"], FORMAT))
    if not intact:
        raise ValueError(f"{MANIFEST} has changed since it was written")
    return content


def problem(folder: Path, hashed: int | None = None) -> str | None:
    """Why a folder is not what was written, in a few words; None if it is.

    Args:
        folder: to be read.
        hashed: compare the sha256 only of files up to this size; of larger ones the size alone.
    """
    try:
        files = read_manifest(folder)["files"]
    except ValueError as error:
        return str(error)
    for name, (size, expected) in files.items():
        path = folder / name
        if wrong := _unreadable(path):
            return f"{name} {wrong}"
        compared = hashed is None or size <= hashed
        if path.stat().st_size != size or (compared and sha256(path) != expected):
            return f"{name} has changed since it was written"
    return None


def _unreadable(path: Path) -> str | None:
    if path.is_file():
        return None
    return "is not a regular file" if path.exists() else "is missing"


def facts_of(
    folder: Path, remedy: str, hashed: int | None = None, error: type[ProjectError] = BadInput
) -> Facts:
    """The facts in the manifest of a folder that is what was written, see `problem`.

    Raises:
        error: it is not; the message names what is wrong and ends with `remedy`.
    """
    if reason := problem(folder, hashed):
        raise error(f"{folder}: {reason}; {remedy}")
    return read_manifest(folder)["facts"]


def cached(
    folder: Path, make: Callable[[Path], None], facts: Facts | None = None, wait: bool = True
) -> Path:
    """Fill a folder with `make` unless it is there as it was written; returns it.

    A process waits for another one that fills the same folder, and then uses it; without `wait` it
    raises FolderInUse. Other errors as in `filling`.
    """
    if problem(folder) is None:
        return folder
    with locked(folder, wait):
        if reason := problem(folder):
            if folder.exists():
                logger.warning("%s: %s; making it again", folder, reason)
            with filling(folder, facts, replace=True) as new:
                make(new)
    return folder


@contextmanager
def locked(path: Path, wait: bool = False) -> Iterator[None]:
    """Hold the lock of a file or folder while the block runs; its process may hold it already.

    It is a record lock on `.NAME.lock` beside it: it ends with its process, however that ends, and
    worker processes do not inherit it. Where the file system has no locks, there is none.

    Raises:
        BadInput, StorageError: the folder that the path is in cannot be made or written.
        FolderInUse: another process holds the lock; the message gives its pid.
    """
    file = path.parent.resolve() / f".{path.name}.lock"
    if _held.get(file) == os.getpid():
        yield
        return
    with writable(path):
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(file, path, wait)
    _held[file] = os.getpid()
    try:
        yield
    finally:
        _held.pop(file, None)  # another thread may have been here
        file.unlink(missing_ok=True)
        os.close(descriptor)


def _lock(file: Path, path: Path, wait: bool) -> int:
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):  # depends on the system
                pid = os.read(descriptor, 20).decode(errors="replace")
                os.close(descriptor)
                said = f"{path}: in use by another command (pid {pid})"
                raise FolderInUse(said) from error
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), file.stat()):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, str(os.getpid()).encode(), 0)
                return descriptor
        os.close(descriptor)  # whoever held it has removed the file


def share(jobs: Mapping[str, Callable[[bool], None]]) -> list[str]:
    """Do every job that no other process does, in order; returns the names of those left to others.

    Locks divide the work, and nothing else: a job raises FolderInUse if another process holds what
    it needs. It is called with False, then, at the end, with True: it may now wait.
    """
    left = dict(jobs)
    for wait in (False, True):
        for name, do in list(left.items()):
            with suppress(FolderInUse):
                do(wait)
                del left[name]
    return list(left)
