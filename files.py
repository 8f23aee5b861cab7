"""Opening regular files, hashing files, and flushing them to the disk."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

from errors import BadInput


def refuse_special(path: Path) -> None:
    """BadInput for a pipe or a device: opening one could make the command wait."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise BadInput(f"{path}: not a regular file")


def opened(path: Path) -> BinaryIO:
    """A regular file's bytes to read; BadInput for anything else."""
    try:
        refuse_special(path)
        if path.is_dir():
            raise BadInput(f"{path}: is a folder; name its files")
        return path.open("rb")
    except FileNotFoundError as error:
        raise BadInput(f"{path}: no such file") from error
    except OSError as error:
        raise BadInput(f"{path}: cannot be opened ({error.strerror})") from error


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """The sha256 of a file, in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
