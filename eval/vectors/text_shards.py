"""Shards of text: plain or compressed lines, or a Parquet column, read in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from common.errors import BadInput
from common.files import open_regular

ROWS = 20_000  # texts held at once
Lines = Callable[[Path], Iterator[tuple[int, str]]]  # a text file -> (number, line), as `data.text.numbered_lines`
_PACKED, _KINDS = (".gz", ".xz", ".zst"), (".txt", ".parquet")
_PARQUET = b"PAR1"


def stem_of(path: Path) -> str:
    """The name of a shard's outputs: its own without `.gz`, `.xz`, `.zst` and `.txt`, `.parquet`."""
    name = path.name
    for endings in (_PACKED, _KINDS):
        name = next((name.removesuffix(ending) for ending in endings if name.endswith(ending)), name)
    return name


def pieces(path: Path, column: str, lines: Lines) -> Iterator[list[str]]:
    """The texts of a shard in order, at most `ROWS` at a time; an empty line is an empty text, so no row is lost.

    Raises:
        BadInput: with file and line or row: the file is missing, empty or damaged, lacks the column, or holds what
            is not UTF-8 text.
    """
    texts = _column(path, column) if is_parquet(path) else (text for _, text in lines(path))
    empty = True
    while piece := list(islice(texts, ROWS)):
        empty = False
        yield piece
    if empty:
        raise BadInput(f"{path}: holds no text; leave the file out")


def is_parquet(path: Path) -> bool:
    """Decided by the first bytes, not by the name, as for compressed files."""
    with open_regular(path) as file:
        return file.read(len(_PARQUET)) == _PARQUET


def _column(path: Path, column: str) -> Iterator[str]:
    row = 0
    try:
        with pq.ParquetFile(path) as file:
            _check_column(path, file.schema_arrow, column)
            for batch in file.iter_batches(ROWS, columns=[column]):
                texts = batch.column(0)
                texts.validate(full=True)  # Parquet does not guarantee UTF-8
                if texts.null_count:
                    place = row + texts.is_null().index(True).as_py() + 1
                    raise BadInput(f"{path}: row {place}: '{column}' is null; write an empty text or leave the row out")
                row += len(texts)
                yield from texts.to_pylist()
    except (OSError, pa.ArrowException) as error:
        said = str(error).splitlines()[0]
        raise BadInput(f"{path}: after row {row}: not a whole Parquet file of UTF-8 text ({said})") from error


def _check_column(path: Path, schema: pa.Schema, column: str) -> None:
    if column not in schema.names:
        raise BadInput(f"{path}: no column '{column}'; choose by --column one of: {', '.join(schema.names)}")
    kind = schema.field(column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise BadInput(f"{path}: column '{column}' is {kind}, not string; choose another --column")
