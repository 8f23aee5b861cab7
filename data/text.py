"""Rows of training text from files of every format, kept in a memory-mapped Arrow file.

Cells are stripped; rows with an empty cell are dropped and counted. `datasets` and pandas would
infer types, so that "None" becomes no text and 007 the number 7, and would cut a CSV row with an
unquoted comma; so the cells of tables in text form are read as text by the standard library.
"""

import csv
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from common.arguments import LABEL
from common.errors import BadInput, brief
from common.files import read_json
from common.folders import cached
from data.lines import LONGEST, numbered_lines, texts_by_line
from data.source import Source

logger = logging.getLogger(__name__)
NLI_LABELS = ("contradiction", "entailment", "neutral")
ROWS_AT_ONCE = 1000  # in memory, where they have room even if every cell is as long as it may be
# Bytes of a line of CSV or JSON: a small packed file can have one that fills the memory.
_LONGEST_ROW = 2**28
# A pair without a majority label: in SNLI's files, on the hub, in a table.
_UNDECIDED = ("-", -1, None)
_NO_JSON = "not JSON, one object per line or one array"
_TOO_LONG = f"a cell of more than {LONGEST:,} bytes; is it one text per cell?"

# Where a row is, such as ":3", and its cells, None if all are empty.
Cells = tuple[str, Sequence[Any] | None]


class Text:
    """A text in the cache.

    Attributes:
        rows: a `datasets.Dataset` of strings, one column per sentence of a row ("0", "1", "2");
            labelled text also has `label` (int64, an index into NLI_LABELS).
        facts: the text's facts for run.json: content hash, rows, dropped rows.
    """

    def __init__(self, folder: Path) -> None:
        from datasets import Dataset  # here: a finished run never reads its text

        self.rows = Dataset.from_file(str(folder / "rows.arrow"))
        self.facts = read_json(folder / "facts.json", "the facts of a cached text")

    def __len__(self) -> int:
        return len(self.rows)

    def cells(self, rows: Sequence[int] | np.ndarray | None = None) -> Iterator[str]:
        """Yield every sentence of all rows, or of the rows with these indices, row by row."""
        chosen = self.rows if rows is None else self.rows.select(rows)
        names = [name for name in self.rows.column_names if name != LABEL]
        for batch in chosen.iter(ROWS_AT_ONCE):
            for row in zip(*(batch[name] for name in names), strict=True):
                yield from filter(None, row)


def read_text(source: Source, cache_dir: str | Path) -> Text:
    """Return the rows of a text, from the cache or read now.

    Raises:
        BadInput: with file and line or row: a file that cannot be opened, is damaged or of another
            format; a column that is missing or not text; a bad line, see
            `data.lines.numbered_lines`; a row with too many or too few cells; an unknown label. A
            text without a sentence, or that changes while it is read.
        OSError: the disk is full.
    """
    return Text(
        cached(Path(cache_dir) / f"text-{source.key()}", lambda folder: _write(folder, source))
    )


def _write(folder: Path, source: Source) -> None:
    counts: Counter[str] = Counter()
    names = [str(number) for number in range(source.width)]
    if source.labelled:
        names.append(LABEL)
    schema = pa.schema({name: pa.int64() if name == LABEL else pa.string() for name in names})
    write_rows(folder / "rows.arrow", schema, _batches(names, _rows(source, counts)))
    source.check_unchanged()  # the cache is found by the content
    if not counts["rows"]:
        raise BadInput(f"{source.described}: contains no sentences")
    facts: dict[str, Any] = {"sha256": source.sha256, "columns": len(names)}
    facts |= {"rows": counts["rows"], "empty_lines_dropped": counts["empty"]}
    if source.labelled:
        facts |= {"undecided_rows_dropped": counts["undecided"], "labels": NLI_LABELS}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    logger.info("read %d rows (%d empty ones dropped)", counts["rows"], counts["empty"])


def write_rows(path: Path, schema: pa.Schema, batches: Iterable[Mapping[str, Sequence]]) -> None:
    """Write batches of rows, column by column, to an Arrow file as `datasets` maps it to memory."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for batch in batches:
            writer.write_batch(pa.RecordBatch.from_pydict(batch, schema))


def _batches(names: Sequence[str], rows: Iterator[list]) -> Iterator[dict[str, Sequence]]:
    """Some rows at a time, by column."""
    while batch := [*islice(rows, ROWS_AT_ONCE)]:
        yield dict(zip(names, zip(*batch, strict=True), strict=True))


def _rows(source: Source, counts: Counter[str]) -> Iterator[list]:
    """Yield the sentences of each row, then the index of its label if labelled; count rows."""
    for _, row in rows_of(source):
        if isinstance(row, str):
            counts[row] += 1
        else:
            counts["rows"] += 1
            yield row


def rows_of(source: Source) -> Iterator[tuple[str, list[Any] | str]]:
    """Yield where each row is in its file, such as ":3", and the row, or why it is dropped."""
    read = {"csv": _separated, "text": _separated, "json": _objects}.get(source.reader, _columns)
    for path in source.files:
        for where, cells in read(source, path):
            try:
                row = _row(source, cells or ())
            except ValueError as error:
                raise BadInput(f"{path}{where}: {brief(error)}") from error
            yield where, row


def _row(source: Source, cells: Sequence[Any]) -> list[Any] | str:
    """A row, or why it is dropped, "empty" or "undecided"; ValueError if a cell is no text."""
    row: list[Any] = ["" if cell is None else _visible(cell) for cell in cells[: source.width]]
    if source.titled and row and not row[1]:
        row[:2] = "", row[0]  # a title without a text is the text
    if not row or not all(row[source.titled :]):
        return "empty"
    if source.labelled:
        if cells[-1] in _UNDECIDED:
            return "undecided"
        label = str(cells[-1]).strip()
        if label not in NLI_LABELS:
            raise ValueError(f"label '{label[:40]}' is not one of {', '.join(NLI_LABELS)}")
        row.append(NLI_LABELS.index(label))
    return row


def _visible(cell: Any) -> str:
    """A cell without spaces around it; empty if it shows nothing, such as a zero-width space."""
    if not isinstance(cell, str):
        raise ValueError(f"a cell is of type {type(cell).__name__}, not text")
    if len(cell.encode()) > LONGEST:  # fails for half a surrogate pair, which JSON can have
        raise ValueError(_TOO_LONG)
    cell = cell.strip()
    return cell if any(map(str.isprintable, cell)) else ""


def _separated(source: Source, path: Path) -> Iterator[Cells]:
    """Yield the rows of a CSV file, or of lines cut at tabs.

    The first one that is not empty names the columns, if they have names.
    """
    columns: Sequence[int] = range(source.columns)
    width = None if source.read else source.columns
    for number, cells in _split(source, path):
        if not any(map(str.strip, cells)):
            yield f":{number}", None
        elif width is None:
            header = [cell.strip() for cell in cells]
            source.check_columns(path, header)
            columns, width = [header.index(name) for name in source.required], len(header)
        elif len(cells) == width:
            yield f":{number}", [cells[column] for column in columns]
        else:
            csv_file = source.reader == "csv"
            advice = "quote cells with a comma" if csv_file else "see --text_column and --columns"
            raise BadInput(f"{path}:{number}: {len(cells)} columns, expected {width}; {advice}")


def _split(source: Source, path: Path) -> Iterator[tuple[int, list[str]]]:
    if source.reader == "text":
        for number, line in texts_by_line(path):
            yield number, line.split("\t")
        return
    csv.field_size_limit(LONGEST)  # of the module
    number = 0

    def lines() -> Iterator[str]:
        nonlocal number
        for number, line in numbered_lines(path, _LONGEST_ROW):  # noqa: B007 - read below
            yield f"{line}\n"

    try:
        # Strict: otherwise a missing quotation mark would join all that follows.
        for cells in csv.reader(lines(), strict=True):
            if cells:  # a blank line is no row
                yield number, cells
    except csv.Error as error:
        raise BadInput(f"{path}:{number}: not CSV ({error})") from error


def _objects(source: Source, path: Path) -> Iterator[Cells]:
    """Yield the rows of a JSON file, None where an object lacks a column that others have."""
    seen: dict[str, None] = {}
    for row, record in _records(path):
        seen |= dict.fromkeys(record)
        yield row, [record.get(name) for name in source.required]
    if seen:
        source.check_columns(path, seen)


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a file, one per line or one array.

    A text in an array is an object with the key `text`.
    """
    lines = ((number, line) for number, line in numbered_lines(path, _LONGEST_ROW) if line.strip())
    for number, line in lines:
        is_array = line.lstrip().startswith("[")
        if is_array:
            line = "\n".join([line, *(text for _, text in lines)])
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path}:{number}: {_NO_JSON} ({error})") from error
        for row, value in enumerate(values if is_array else [values], 1):
            if is_array and isinstance(value, str):
                value = {"text": value}
            if not isinstance(value, dict):
                raise BadInput(f"{path}:{number}: {_NO_JSON} (not an object)")
            yield f": row {row}" if is_array else f":{number}", value


def _columns(source: Source, path: Path) -> Iterator[Cells]:
    """Yield the rows of a Parquet or Arrow file; a label of the hub's class type by its name."""
    read = _parquet if source.reader == "parquet" else _arrow
    count = 0
    try:
        for batch in read(source, path):
            batch.validate(full=True)  # otherwise a damaged file can end the process
            columns = [cells_of(path, name, batch[name]) for name in source.required]
            if source.labelled and pa.types.is_integer(batch[source.label].type):
                columns[-1] = _named(columns[-1], source.label, batch.schema)
            for cells in zip(*columns, strict=True):
                count += 1
                yield f": row {count}", cells
    # pyarrow raises all of them for a damaged file.
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise BadInput(f"{path}: cannot be read as {source.reader} ({brief(error)})") from error


def _parquet(source: Source, path: Path) -> Iterator[pa.RecordBatch]:
    """The required columns, repeated cells as dictionaries: written once, they are read once."""
    source.check_columns(path, pq.read_schema(path).names)
    file = pq.ParquetFile(path, read_dictionary=source.required)
    yield from file.iter_batches(ROWS_AT_ONCE, columns=source.required)


def _arrow(source: Source, path: Path) -> Iterator[pa.RecordBatch]:
    """The required columns of a stream, as `datasets` writes it."""
    stream = pa.ipc.open_stream(pa.memory_map(str(path)))
    source.check_columns(path, stream.schema.names)
    for batch in stream:
        for start in range(0, len(batch), ROWS_AT_ONCE):
            yield batch.select(source.required).slice(start, ROWS_AT_ONCE)


def cells_of(path: Path, name: str, column: pa.Array) -> list[Any]:
    """The cells of a column; a repeated one of a dictionary is one string.

    Raises:
        BadInput: the column has lists, bytes or the like, or a cell that is too long: a file of a
            few kilobytes can repeat it until it fills the memory.
    """
    values = column.dictionary if isinstance(column, pa.DictionaryArray) else column
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        if (pc.max(pc.binary_length(values)).as_py() or 0) > LONGEST:
            raise BadInput(f"{path}: column '{name}' has {_TOO_LONG}")
    elif not (pa.types.is_primitive(values.type) or pa.types.is_null(values.type)):
        raise BadInput(f"{path}: column '{name}' is of type {values.type}, not text")
    cells = values.to_pylist()
    if values is column:
        return cells
    return [None if index is None else cells[index] for index in column.indices.to_pylist()]


def _named(labels: list[Any], column: str, schema: pa.Schema) -> list[Any]:
    """The labels by name, if the column is of the hub's class type."""
    from datasets import ClassLabel, Features

    only = pa.schema([schema.field(column)], schema.metadata)
    kind = Features.from_arrow_schema(only)[column]
    if not isinstance(kind, ClassLabel):
        return labels
    return [label if label in _UNDECIDED else kind.int2str(label) for label in labels]
