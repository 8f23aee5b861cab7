"""Folders that are either whole or not there, also when several processes make the same one."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from errors import unwritable


@contextmanager
def whole_folder(folder: Path, marker: str) -> Iterator[Path]:
    """A temporary folder to fill, which becomes `folder` at the end.

    Args:
        folder: the final place.
        marker: a file of it; where it exists already, another process was faster and its work is kept.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=folder.parent))
    except OSError as error:
        raise unwritable(error, f"--cache_dir {folder.parent}: cannot be a folder ({error.strerror})") from error
    try:
        yield partial
        partial.rename(folder)
    except OSError:
        if not (folder / marker).exists():
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
