"""First runs without downloads: a training, a search in docstrings, a minute of both."""

from collections.abc import Iterable
from pathlib import Path

from common.errors import BadInput
from common.files import writing


def own_folder(folder: Path, names: Iterable[str]) -> None:
    """Mark a folder as generated, with a hidden file.

    Raises:
        BadInput: it already has one of the files and no mark.
    """
    mark = folder / ".generated"
    foreign = [name for name in names if (folder / name).exists()]
    if foreign and not mark.exists():
        raise BadInput(
            f"{folder}: has a {foreign[0]} that this command did not write; choose another folder, "
            "or move it"
        )
    with writing(mark) as part:
        part.touch()
