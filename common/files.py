"""Files that are complete or absent: read, write, hash and replace them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import yaml

from common.errors import BadInput, brief, unwritable

ROOT = Path(__file__).parents[1]  # of this project
RUN_FILE = "run.json"  # the record of a run, beside its result


def refuse_special(path: Path) -> None:
    """Raise BadInput for a pipe or a device: opening one could block."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise BadInput(f"{path}: not a regular file")


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read its bytes; BadInput for anything else."""
    try:
        refuse_special(path)
        return path.open("rb")
    except OSError as error:
        raise BadInput(f"{path}: {str(error.strerror).lower()}") from error


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Return the sha256 of a file as hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest(content: Any) -> str:
    """Return the sha256 of JSON values as hex digits."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def files_in(folder: Path) -> dict[str, Path]:
    """Return every file of a folder and its subfolders by relative path, sorted.

    Hidden ones are left out, as systems leave them: `.DS_Store`, `.nfs0000001`.
    """
    paths = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    hidden = {name for name in paths if any(part.startswith(".") for part in name.parts)}
    return {str(name): path for name, path in paths.items() if name not in hidden}


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; at the end it is flushed and renamed to `path`.

    Each writer has its own hidden name, so concurrent writers leave a complete file of one of them.

    Raises:
        BadInput, StorageError: the file cannot be written there.
    """
    part = path.with_name(f".{path.name}.{uuid4().hex[:8]}.part")
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield part
            sync(part)
            part.replace(path)
            sync(path.parent)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn errors of the system into one that says that the path cannot be written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise unwritable(error, f"{path}: cannot be written ({reason})") from error


def share_weights(folder: Path) -> None:
    """Give weights the permissions of config.json: by default only their owner can read them."""
    for path in folder.rglob("*.safetensors"):
        shutil.copymode(folder / "config.json", path)


def read_rows(path: Path, what: str, remedy: str = "repair or remove it") -> list[dict[str, Any]]:
    """The rows of a JSON file, read as by `read_json`; none if there is no file."""
    return read_json(path, what, remedy, list) if path.is_file() else []


def write_json(path: Path, content: Any, sort_keys: bool = False) -> None:
    """Write one JSON document, complete or not at all; errors as in `writing`."""
    with writing(path) as part:
        part.write_text(json.dumps(content, indent=2, sort_keys=sort_keys) + "\n", encoding="utf-8")


def read_json(
    path: Path,
    what: str,
    remedy: str = "repair or remove it",
    kind: type = dict,
    error: type[Exception] = BadInput,
    fields: Mapping[str, type] = {},
) -> Any:
    """Read one JSON document.

    Args:
        path: the file.
        what: what the file is, for the message: "a run record".
        remedy: what to do, the end of the message.
        kind: the type of the document, dict or list.
        error: raised if the file cannot be read, is not JSON, or is of another type.
        fields: names that the object must have, and their types.
    """
    try:
        refuse_special(path)
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as reason:
        raise error(f"{path}: cannot be read as {what} ({reason}); {remedy}") from reason
    names: dict[type, str] = {dict: "an object", list: "a list"}
    if type(content).__name__ != kind.__name__:
        raise error(f"{path}: is not {what} (expected {names[kind]}); {remedy}")
    wrong = [name for name, of in fields.items() if type(content.get(name)) is not of]
    if wrong:
        expected = f"an object with {', '.join(wrong)}"
        raise error(f"{path}: is not {what} (expected {expected}); {remedy}")
    return content


class _Strict(yaml.constructor.BaseConstructor):
    """Refuses repeated keys, of which PyYAML keeps the last value."""

    def construct_mapping(self, node, deep=False):
        names: set[str] = set()
        for key, _ in node.value:
            if key.value in names:
                problem = f"key '{key.value}' is repeated"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            names.add(key.value)
        return super().construct_mapping(node, deep)


class _Values(_Strict, yaml.SafeLoader):
    """Loads numbers, booleans, dates and strings."""


class _Strings(_Strict, yaml.BaseLoader):
    """Loads every scalar as a string."""


def read_yaml(path: Path, strings: bool = False) -> Any:
    """Read a YAML file; with `strings`, every scalar stays a string.

    Raises:
        BadInput: the file cannot be read, is not YAML, or has a repeated key.
    """
    try:
        refuse_special(path)  # a pipe would be waited for
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Strings if strings else _Values)
    except Exception as error:  # more than PyYAML's own, as for `!!int ''` or deep nesting
        raise BadInput(f"{path}: cannot be read, or not a YAML file: {brief(error)}") from error


def find_files(
    names: Sequence[str], data_dir: str, written: Sequence[str | Path] = ()
) -> list[Path]:
    """Resolve names of training files, folders (see `files_of`) and patterns.

    Each is looked for as given, then below `data_dir`.

    Raises:
        BadInput: a name exists in neither folder.
    """
    files: list[Path] = []
    for name in names:
        paths = dict.fromkeys([Path(name), Path(data_dir) / name])
        existing = next(filter(None, map(_matching, paths)), None)
        if existing is None:
            raise BadInput(f"'{name}': no file or folder at {' or at '.join(map(str, paths))}")
        found = [file for path in existing for file in files_of(path, written)]
        files += dict.fromkeys(found)  # `**` finds some twice
    return files


def _matching(path: Path) -> list[Path]:
    """The file or folder at a path, or all that match it as a pattern, sorted."""
    return [path] if path.exists() else sorted(map(Path, glob(str(path), recursive=True)))  # noqa: PTH207 - skips hidden files


def files_of(path: Path, written: Sequence[str | Path] = ()) -> list[Path]:
    """Return a file itself, or all files of a folder and its subfolders, sorted by path.

    Hidden ones, and what Spark and `datasets` write beside their data, are skipped.

    Args:
        path: the file or folder.
        written: folders that the command writes; skipped, since they may lie in `path` and would be
            text next time.
    """
    if not path.is_dir():
        return [path]
    files = list(_below(path, {path.resolve(), *(Path(folder).resolve() for folder in written)}))
    if not files:
        raise BadInput(f"{path}: the folder contains no files; name files or a folder of files")
    return files


_SAVED = {"state.json", "dataset_info.json"}  # written by `Dataset.save_to_disk`


def _below(folder: Path, left_out: set[Path]) -> Iterator[Path]:
    """The files below a folder; those of `left_out` are not entered, nor links back above."""
    paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    saved = {path.name for path in paths} >= _SAVED
    for path in paths:
        if path.name == "_SUCCESS" or (saved and path.name in _SAVED):  # Spark writes the first
            continue
        # A broken link or a pipe too: opening it raises, so no text is skipped silently.
        if not path.is_dir():
            yield path
        elif (real := path.resolve()) not in left_out:
            yield from _below(path, left_out | {real})
