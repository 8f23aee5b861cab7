"""Rows of CSV and JSON files, of which only the named columns are read, as text.

`datasets` infers the types of all columns from the first ten megabytes and fails if a later row differs, even in a
column that nobody reads; neither it nor pandas limits a row's length, and a small packed file can have one that fills
the memory. JSON is one object per line, or one array of objects or of texts.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Value

from common.errors import BadInput
from data.lines import LONGEST_LINE, numbered_lines
from data.source import Source

LONGEST_ROW = 2**28  # bytes of a line, or of a JSON array, which is read whole
_ADVICE = "write one object per line, or one array"


def load(source: Source, files: Sequence[Path], names: Sequence[str], folder: Path) -> Dataset:
    """Return the named columns of the files, written to `folder`; null where a row has none.

    Raises:
        datasets.exceptions.DatasetGenerationError: its cause is a BadInput that names file and line.
    """
    how = {"source": source, "files": tuple(files), "names": tuple(names)}
    features = Features({name: Value("string") for name in names})
    return Dataset.from_generator(_rows, features=features, cache_dir=str(folder), gen_kwargs=how)


def columns(source: Source) -> list[str]:
    """Return the columns of the first file: a CSV's header, or the keys of all objects in order of appearance."""
    [path, *_] = source.files
    if source.kind == "csv":
        return next((cells for _, cells in _csv_rows(path)), [])
    return list(dict.fromkeys(key for _, record in _json_records(path) for key in record))


def _rows(source: Source, files: Sequence[Path], names: Sequence[str]) -> Iterator[dict[str, str | None]]:
    for path in files:
        seen: dict[str, None] = {}
        records = _csv_records(source, path, names) if source.kind == "csv" else _json_records(path)
        for place, record in records:
            seen.update(dict.fromkeys(record))
            yield {name: _text(record.get(name), name, place) for name in names}
        if not seen:
            raise BadInput(f"{path}: contains no sentences")
        if missing := [name for name in names if name not in seen]:
            raise BadInput(source.no_column(path, missing[0], seen))


def _csv_records(source: Source, path: Path, names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows below the header by the names that are read."""
    rows = _csv_rows(path)
    _, header = next(rows, ("", []))
    for name in names if header else ():
        if name not in header:
            raise BadInput(source.no_column(path, name, header))
        if header.count(name) > 1:
            raise BadInput(f"{path}: column '{name}' occurs twice in the header")
    places = [(name, header.index(name)) for name in names if header]
    for place, cells in rows:
        if len(cells) > len(header):
            raise BadInput(f"{place}: {len(cells)} cells, but the header has {len(header)}; quote cells with a comma")
        yield place, {name: cells[index] if index < len(cells) else None for name, index in places}


def _csv_rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows that are not empty, and where each ends."""
    csv.field_size_limit(LONGEST_ROW)  # of the module
    number, ended = 0, False

    def lines() -> Iterator[str]:
        nonlocal number, ended
        for number, line in numbered_lines(path, LONGEST_ROW):  # noqa: B007 - read below
            yield f"{line}\n"
        ended = True

    try:
        for cells in csv.reader(lines()):
            if ended:
                raise BadInput(f"{path}:{number}: the file ends within a quoted cell")
            if cells:
                yield f"{path}:{number}", cells
    except csv.Error as error:
        raise BadInput(f"{path}:{number}: not CSV ({error})") from error


def _json_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a file, and where each stands; a text of an array is an object with the key `text`."""
    lines = ((number, line.removeprefix("\ufeff")) for number, line in numbered_lines(path, LONGEST_ROW))
    filled = ((number, line) for number, line in lines if line.strip())
    for number, line in filled:
        if line.lstrip().startswith("["):
            array = _parsed(_joined(path, line, filled), f"{path}:{number}")
            for place, each in enumerate(array, 1):
                yield _object({"text": each} if isinstance(each, str) else each, f"{path}: row {place:,}")
        else:
            yield _object(_parsed(line, f"{path}:{number}"), f"{path}:{number}")


def _joined(path: Path, first: str, rest: Iterator[tuple[int, str]]) -> str:
    lines, size = [first], len(first)
    for _, line in rest:
        lines.append(line)
        size += len(line)
        if size > LONGEST_ROW:
            raise BadInput(f"{path}: an array longer than {LONGEST_ROW:,} bytes; write one object per line")
    return "\n".join(lines)


def _object(value: Any, place: str) -> tuple[str, dict[str, Any]]:
    if not isinstance(value, dict):
        raise BadInput(f"{place}: not a JSON object; {_ADVICE}")
    return place, value


def _parsed(content: str, place: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{place}: not JSON ({error}); {_ADVICE}") from error


def _text(value: Any, name: str, place: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{place}: '{name}' is of type {type(value).__name__}, not text")
    try:
        size = len((value or "").encode())
    except UnicodeEncodeError as error:
        raise BadInput(f"{place}: '{name}' has half a surrogate pair, which UTF-8 cannot encode") from error
    if size > LONGEST_LINE:
        raise BadInput(f"{place}: '{name}' is longer than {LONGEST_LINE:,} bytes; split it")
    return value
