"""The exported folder appears whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import BadInput, unwritable
from training.faults import storage_errors


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill beside `target`, which takes its place at the end; removed when anything goes wrong.

    Raises:
        BadInput: `target` is there and not empty, or cannot be written.
        StorageError: its disk is full or failing.
    """
    target = target.resolve()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise BadInput(f"--output {target}: is there already; give a new or an empty folder")
    partial = target.with_name(f".{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)  # of a command that was killed
        partial.mkdir()
        with storage_errors(target.parent):
            yield partial
            partial.rename(target)
    except OSError as error:
        raise unwritable(error, f"--output {target}: cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
