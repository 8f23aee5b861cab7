"""Write a folder atomically."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import BadInput, unwritable
from common.files import writing_folder
from training.faults import storage_errors


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill; it becomes `target` if the block succeeds, and is removed otherwise.

    Raises:
        BadInput: `target` exists and is not empty, or cannot be written.
        StorageError: its disk is full or failing.
    """
    target = target.resolve()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise BadInput(f"--output {target}: already exists; give a new or empty folder")
    try:
        with writing_folder(target) as folder, storage_errors(target.parent):
            yield folder
    except OSError as error:
        raise unwritable(error, f"--output {target}: cannot be written ({error.strerror or error})") from error
