"""Vectors that stay on disk: files that are whole or not there, in a folder that says what it is for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from uuid import uuid4

from common.errors import BadInput, unwritable

MANIFEST = "manifest.json"


@contextmanager
def writing(path: Path, remedy: str = "choose another folder") -> Iterator[Path]:
    """A path to write to that becomes `path` when all of it is there.

    Every writer has a name of its own (`NAME.*.part`), so that of several writers of one file, among them one that
    was believed dead, each makes a whole one and the last stays. Whoever succeeds removes what killed ones left.

    Raises:
        BadInput, StorageError: the place, or the disk, does not take it; ends with `remedy`.
    """
    part = path.with_name(f"{path.name}.{uuid4().hex[:8]}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        _place(part, path)
    except OSError as error:
        raise unwritable(error, f"{path}: cannot be written ({error.strerror}); {remedy}") from error
    finally:
        if part.exists():
            part.unlink()


def check_output(output: str | None, inputs: Iterable[str | None], first: bytes) -> None:
    """BadInput, before any work, for an `--output` that takes no file, is one of the inputs, or holds something else.

    Args:
        output: the file to write; None where none is asked for.
        inputs: files the command reads, None for those not given.
        first: what the files begin with that the command writes there.
    """
    path = Path(output or "")
    if output is None or not path.exists():
        return
    if path.is_dir():
        raise BadInput(f"--output {output}: is a folder; name a file")
    if any(given and Path(given).exists() and path.samefile(given) for given in inputs):
        raise BadInput(f"--output {output}: is read by this command, and would be replaced; name another file")
    if not path.is_file():  # a device or a pipe, which reading would wait for
        return
    try:
        with path.open("rb") as file:
            begins = file.read(len(first))
    except OSError as error:
        raise BadInput(f"--output {output}: cannot be read ({error.strerror}); name another file") from error
    if begins and begins.lower() != first:
        raise BadInput(f"--output {output}: holds something else than is written there; name another file")


def _place(part: Path, path: Path) -> None:
    try:
        part.replace(path)
    except FileNotFoundError:
        if not path.is_file():  # otherwise a faster writer took this one for a leftover, and its file is whole
            raise
    for left in path.parent.glob(f"{escape(path.name)}.*.part"):
        left.unlink(missing_ok=True)


def write_json(path: Path, content: dict) -> None:
    """One JSON object, whole or not there."""
    with writing(path) as part:
        part.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path, kind: str, remedy: str) -> dict:
    """One JSON object; BadInput says what `kind` of file it is not, and the remedy."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("not a JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: cannot be read as {kind} ({error}); {remedy}") from error
    return found


def claim(folder: Path, manifest: dict, made: str) -> None:
    """Write what the folder is for, or refuse one that is for something else.

    Args:
        folder: where the vectors stay.
        manifest: whatever decides them.
        made: pattern of the files that nobody but the owner of a manifest writes.

    Raises:
        BadInput: the folder belongs to something else, or to nobody knows what.
    """
    path = folder / MANIFEST
    if not path.is_file():
        if next(folder.glob(made), None):
            raise BadInput(f"{folder}: holds shards but no {MANIFEST}, so whose they are is unknown; choose another")
        write_json(path, manifest)
    found = read_json(path, "a manifest", "choose another folder")
    differing = [name for name in manifest if found.get(name) != manifest[name]]
    if differing:
        what = "; ".join(f"{name} {found.get(name)}, now {manifest[name]}" for name in differing)
        raise BadInput(f"{folder}: its embeddings are of something else ({what}); choose another folder or remove it")
