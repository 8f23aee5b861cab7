"""Files that are whole or absent: one way to read, write, hash and replace them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import escape, glob
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import yaml

from common.errors import BadInput, unwritable


def refuse_special(path: Path) -> None:
    """BadInput for a pipe or a device: opening one could make the command wait."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise BadInput(f"{path}: not a regular file")


def open_regular(path: Path) -> BinaryIO:
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


def digest(content: Any) -> str:
    """The sha256 of JSON values, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def files_in(folder: Path) -> dict[str, Path]:
    """Every file of a folder and its subfolders, by its path there, sorted."""
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


@contextmanager
def writing(path: Path, remedy: str | None = "choose another folder") -> Iterator[Path]:
    """A path to write to; at the end it is flushed and renamed to `path`.

    Each writer has its own temporary name (`NAME.*.part`), so concurrent writers each make a whole file and the last
    one stays. A writer that succeeds removes what killed ones left.

    Raises:
        BadInput, StorageError: the place, or the disk, does not take the file; the message ends with `remedy`. Without
            a remedy, errors pass as OSError.
    """
    part = path.with_name(f"{path.name}.{uuid4().hex[:8]}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        sync(part)
        _replace(part, path)
        sync(path.parent)
    except OSError as error:
        if remedy is None:
            raise
        raise unwritable(error, f"{path}: cannot be written ({error.strerror}); {remedy}") from error
    finally:
        if part.exists():  # `unlink` would raise where the parent is a file
            part.unlink()


def _replace(part: Path, path: Path) -> None:
    try:
        part.replace(path)
    except FileNotFoundError:
        if not path.is_file():  # otherwise a faster writer took this one for a leftover, and its file is whole
            raise
    for left in path.parent.glob(f"{escape(path.name)}.*.part"):
        left.unlink(missing_ok=True)


@contextmanager
def writing_folder(
    target: Path, partial: Path | None = None, place: Callable[[Path, Path], object] = Path.rename
) -> Iterator[Path]:
    """An empty folder to fill; at the end it is flushed and renamed to `target`, which must be absent or empty.

    Errors of the disk pass as OSError. A killed process leaves `.NAME.partial`, which the next one removes.

    Args:
        target: the folder to write.
        partial: an empty folder to fill instead of `.NAME.partial`, for several writers at once.
        place: renames the filled folder; another one may replace `target`.
    """
    if partial is None:
        partial = target.with_name(f".{target.name}.partial")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
    try:
        yield partial
        sync_folder(partial)
        place(partial, target)
        sync(target.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Wait until all files of a folder, and their names, are on the disk."""
    for path in files_in(folder).values():
        sync(path)
    for path in (*(path for path in folder.rglob("*") if path.is_dir()), folder):
        sync(path)


def share_weights(folder: Path) -> None:
    """Give weights the mode of the config.json beside them: safetensors makes files that only their owner can read."""
    for path in folder.rglob("*.safetensors"):
        shutil.copymode(folder / "config.json", path)


def remove(folder: Path) -> None:
    """Delete a folder that this project has written, if it is there."""
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)


def write_json(path: Path, content: Any, sort_keys: bool = False, remedy: str | None = "choose another folder") -> None:
    """One JSON document, whole or absent; errors as in `writing`."""
    with writing(path, remedy) as part:
        part.write_text(json.dumps(content, indent=2, sort_keys=sort_keys) + "\n", encoding="utf-8")


def read_json(
    path: Path,
    what: str,
    remedy: str = "repair or remove it",
    kind: type = dict,
    error: type[Exception] = BadInput,
    fields: Mapping[str, type] = {},
) -> Any:
    """One JSON document.

    Args:
        path: the file.
        what: the kind of file, for the message: "a run record".
        remedy: what to do, the end of the message.
        kind: of the document; `list` for rows.
        error: raised where the file cannot be read, is not JSON, or is of another kind.
        fields: names that the object must have, and their types.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as reason:
        raise error(f"{path}: cannot be read as {what} ({reason}); {remedy}") from reason
    wrong = [
        name for name, needed in (fields or {}).items() if type(found) is dict and type(found.get(name)) is not needed
    ]
    if type(found) is not kind or wrong:
        expected = f"an object with {', '.join(wrong)}" if wrong else {dict: "an object", list: "a list"}[kind]
        raise error(f"{path}: is not {what} ({expected} is needed); {remedy}")
    return found


# What PyYAML raises besides its own class, for `!!int ''`, `!!map [a]`, a date in month 13, deep nesting.
_UNREADABLE = (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)


class _Strict:
    """Refuses a tag and a repeated key; YAML's own loaders keep the last of the values."""

    def construct_mapping(self, node, deep=False):
        names: set[str] = set()
        for place, _ in node.value:
            if not isinstance(place.value, str) or place.value in names:
                raise yaml.constructor.ConstructorError(None, None, f"key '{place.value}' twice or no word",
                                                        place.start_mark)  # fmt: skip
            names.add(place.value)
        return super().construct_mapping(node, deep)

    def compose_node(self, parent, index):
        event = self.peek_event()
        if getattr(event, "tag", None):
            raise yaml.constructor.ConstructorError(
                None, None, f"tag '{event.tag}'; values have none", event.start_mark
            )
        return super().compose_node(parent, index)


class _Values(_Strict, yaml.SafeLoader):
    """Numbers, booleans, dates and strings."""


class _Strings(_Strict, yaml.BaseLoader):
    """Every scalar as the string that is written."""


def read_yaml(path: Path, strings: bool = False) -> Any:
    """What a YAML file holds; with `strings`, every scalar as it is written.

    Raises:
        BadInput: the file cannot be read, is not YAML, or has a tag or a repeated key.
    """
    try:
        refuse_special(path)  # a pipe gives its content once, and a configuration is read twice
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Strings if strings else _Values)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
    except _UNREADABLE as error:
        raise BadInput(f"{path}: not a YAML file: {' '.join(str(error).split())}") from error


def find_files(names: Sequence[str], data_dir: str, own: Sequence[str | Path] = ()) -> list[Path]:
    """Training files, each as given or below `data_dir`, a folder as `files_of`, or all that match a pattern, sorted.

    Raises:
        BadInput: nothing is named, or a name is at neither place.
    """
    if not names:
        raise BadInput("--train_file is missing: the text to train on")
    found: list[Path] = []
    for name in names:
        places = dict.fromkeys([Path(name), Path(data_dir) / name])
        existing = next(filter(None, map(matching, places)), None)
        if existing is None:
            raise BadInput(f"training file '{name}' is not at {' or at '.join(map(str, places))}")
        found += dict.fromkeys(path for place in existing for path in files_of(place, own))  # `**` matches some twice
    return found


def matching(place: Path) -> list[Path]:
    """The file or folder at a place, or those that it names as a pattern; perhaps none."""
    return [place] if place.exists() else sorted(map(Path, glob(str(place), recursive=True)))  # noqa: PTH207 - it leaves out hidden files


def files_of(place: Path, own: Sequence[str | Path] = ()) -> list[Path]:
    """A file itself; of a folder, all files in it and its subfolders but hidden ones, in the order of their paths.

    Args:
        place: the file or folder.
        own: folders the command itself writes, left out too: they may lie in `place`, and would be text the next time.
    """
    if not place.is_dir():
        return [place]
    files = list(_below(place, {place.resolve()}, {Path(folder).resolve() for folder in own}))
    if not files:
        raise BadInput(f"{place}: the folder holds no files; name files, or a folder of them")
    return files


def _below(folder: Path, above: set[Path], own: set[Path]) -> Iterator[Path]:
    try:
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise BadInput(f"{folder}: the folder cannot be read ({error.strerror})") from error
    for path in paths:
        if not path.is_dir():  # also a broken link or a pipe: whoever opens it refuses it, and no text is missed
            yield path
        elif (real := path.resolve()) in above:
            raise BadInput(f"{path}: a link to a folder that it lies in; remove it")
        elif real not in own:
            yield from _below(path, above | {real}, own)
