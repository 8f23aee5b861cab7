"""Rows of JSON files: one object per line, or one array of objects or of texts.

`datasets` infers the types of all columns from the first ten megabytes and fails if a later row differs, even in a
column that nobody reads. Here only the named columns are read, and they must be text.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Value

from common.errors import BadInput
from common.files import open_regular
from data.lines import packing, unpacked
from data.source import Source

_ADVICE = "write one object per line, or one array"


def load(source: Source, files: Sequence[Path], names: Sequence[str], folder: Path) -> Dataset:
    """Return the named columns of the files, written to `folder`; null where a row has none.

    Raises:
        datasets.exceptions.DatasetGenerationError: its cause is a BadInput that names file and line.
    """
    how = {"source": source, "files": tuple(files), "names": tuple(names)}
    features = Features({name: Value("string") for name in names})
    return Dataset.from_generator(_rows, features=features, cache_dir=str(folder), gen_kwargs=how)


def columns(path: Path) -> list[str]:
    """Return the keys of all objects of a file, in order of their first appearance."""
    return list(dict.fromkeys(key for _, record in _records(path) for key in record))


def _rows(source: Source, files: Sequence[Path], names: Sequence[str]) -> Iterator[dict[str, str | None]]:
    for path in files:
        seen: dict[str, None] = {}
        for place, record in _records(path):
            seen.update(dict.fromkeys(record))
            yield {name: _text(record.get(name), name, place) for name in names}
        if not seen:
            raise BadInput(f"{path}: contains no sentences")
        if missing := [name for name in names if name not in seen]:
            raise BadInput(source.no_column(path, missing[0], seen))


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a file, and where each stands; a text of an array is an object with the key `text`."""
    with open_regular(path) as packed, unpacked(packed, packing(path)) as stream:
        filled = ((number, line) for number, line in enumerate(stream, 1) if line.removeprefix(BOM_UTF8).strip())
        for number, line in filled:
            if line.removeprefix(BOM_UTF8).lstrip().startswith(b"["):
                array = _parsed(b"".join([line, *(rest for _, rest in filled)]), f"{path}:{number}")
                for place, each in enumerate(array, 1):
                    yield _object({"text": each} if isinstance(each, str) else each, f"{path}: row {place:,}")
            else:
                yield _object(_parsed(line, f"{path}:{number}"), f"{path}:{number}")


def _object(value: Any, place: str) -> tuple[str, dict[str, Any]]:
    if not isinstance(value, dict):
        raise BadInput(f"{place}: not a JSON object; {_ADVICE}")
    return place, value


def _parsed(content: bytes, place: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{place}: not JSON ({error}); {_ADVICE}") from error


def _text(value: Any, name: str, place: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{place}: '{name}' is of type {type(value).__name__}, not text")
    try:
        (value or "").encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"{place}: '{name}' has half a surrogate pair, which UTF-8 cannot encode") from error
    return value
