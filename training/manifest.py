"""Folders that are whole or absent.

A folder is written beside its place; every file is flushed to the disk and listed with its sha256 in `manifest.json`,
the last file written; then one rename puts it in place. A process may be killed and a disk may fill up at any moment:
what stands in place is whole, and a reader can prove it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.errors import newer_format
from common.files import sha256, sync

MANIFEST = "manifest.json"
FORMAT = 1


@contextmanager
def published(target: Path, run_id: str) -> Iterator[Path]:
    """An empty folder to write into, that takes the place of `target` when the block ends without an error."""
    partial = target.parent / f".{target.name}.partial"
    remove(partial)
    partial.mkdir(parents=True)
    try:
        yield partial
        publish(partial, target, run_id)
    except BaseException:
        remove(partial)  # on a full disk half a folder would keep its room
        raise


@contextmanager
def installed(root: Path) -> Iterator[Path]:
    """An empty folder whose files replace those of `root`, each of them whole, when the block ends without an error."""
    partial = root / ".result.partial"
    remove(partial)
    partial.mkdir()
    try:
        yield partial
        for name, path in _files(partial).items():
            sync(path)
            target = root / name
            target.parent.mkdir(exist_ok=True)
            path.replace(target)
    finally:
        remove(partial)


def publish(partial: Path, target: Path, run_id: str) -> None:
    """Flush, list and move a written folder; an older `target` of the same run is replaced.

    Args:
        partial: on the same file system.
        target: its place. What stands there and is not of this run is kept, as `target.refused`.
        run_id: the run that owns the folder.
    """
    for path in _files(partial).values():
        sync(path)
    content = {"format": FORMAT, "run": run_id, "files": hashes(partial)}
    (partial / MANIFEST).write_bytes(_render(content))
    sync(partial / MANIFEST)
    for folder in (*(path for path in partial.rglob("*") if path.is_dir()), partial):
        sync(folder)
    _move(partial, target, run_id)


def _files(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def hashes(folder: Path) -> dict[str, str]:
    """The sha256 of every file in a folder, by its path there."""
    return {name: sha256(path) for name, path in _files(folder).items()}


def _move(partial: Path, target: Path, run_id: str) -> None:
    if target.is_symlink() or (target.exists() and owner(target) != run_id):
        target.rename(target.with_name(f"{target.name}.refused"))
    replaced = _replaced(target)
    if target.exists():
        target.rename(replaced)
    partial.rename(target)
    sync(target.parent)
    remove(replaced)


def recover(target: Path) -> None:
    """Undo a replacement that was cut short between its two renames."""
    replaced = _replaced(target)
    if replaced.exists() and not target.exists():
        replaced.rename(target)
    remove(replaced)


def _replaced(target: Path) -> Path:
    return target.parent / f".{target.name}.replaced"


def remove(folder: Path) -> None:
    """Delete a folder that this project has written, if it is there."""
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)


def _render(content: Any) -> bytes:
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def _read(folder: Path) -> dict[str, Any]:
    """The manifest's content; ValueError says what is wrong with it."""
    try:
        text = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise ValueError(f"{MANIFEST} cannot be read: {error.strerror}") from error
    try:
        content = json.loads(text)
        known = isinstance(content["format"], int) and isinstance(content["run"], str)
        known = known and isinstance(content["files"], dict)
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ValueError(f"{MANIFEST} is damaged") from error
    if not known or text != _render(content):  # a flipped bit may leave valid JSON
        raise ValueError(f"{MANIFEST} is damaged")
    if content["format"] != FORMAT:
        raise ValueError(newer_format(MANIFEST, content["format"], FORMAT))
    return content


def owner(folder: Path) -> str | None:
    """The run a folder belongs to by its manifest, None without a readable one."""
    try:
        return _read(folder)["run"]
    except ValueError:
        return None


def problem(folder: Path, run_id: str, needed: tuple[str, ...] = ()) -> str | None:
    """Why a folder must not be used, or None when it holds what its manifest lists, byte for byte.

    Args:
        folder: a published folder.
        run_id: the run it has to belong to.
        needed: files that must be among its own.
    """
    try:
        content = _read(folder)
    except ValueError as error:
        return str(error)
    if content["run"] != run_id:
        return "it belongs to another run"
    listed = content["files"]
    paths = {
        str(path.relative_to(folder)): path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()
    }
    paths.pop(MANIFEST, None)
    for name in sorted(listed.keys() | paths.keys() | set(needed)):
        if name not in paths:
            return f"{name} is missing"
        if name not in listed:
            return f"{name} is not in its manifest"
        if paths[name].is_symlink() or not paths[name].is_file():
            return f"{name} is no file of its own"
        if sha256(paths[name]) != listed[name]:
            return f"{name} has changed since it was written"
    return None
