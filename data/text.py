"""Rows of training text from files of every format, kept in a memory-mapped Arrow file.

Cells are stripped; rows with an empty cell are dropped and counted. `datasets` and pandas would
infer types, so that "None" becomes no text and 007 the number 7, and would cut a CSV row with an
unquoted comma; so the cells of tables in text form are read as text by the standard library.
"""

import csv
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import ClassLabel, Dataset, Features, Value
from datasets.arrow_writer import ArrowWriter

from common.arguments import LABEL
from common.errors import BadInput, brief
from common.files import read_json
from data.cache import cached
from data.lines import numbered_lines, texts_by_line
from data.source import Source

logger = logging.getLogger(__name__)
NLI_LABELS = ("contradiction", "entailment", "neutral")
ROWS_AT_ONCE = 10_000  # in memory
_LONGEST_ROW = (
    2**28
)  # bytes of a line of CSV or JSON: a small packed file can have one that fills the memory
_UNDECIDED = (
    "-",
    -1,
    None,
)  # a pair without a majority label: in SNLI's files, on the hub, in a table

Cells = tuple[
    str, Sequence[Any] | None
]  # where a row is, such as ":3", and its cells, None if all are empty


class Text:
    """A text in the cache.

    Attributes:
        rows: a `datasets.Dataset` of strings, one column per sentence of a row ("0", "1", "2");
            labelled text also has `label` (int64, an index into NLI_LABELS).
        facts: the text's facts for run.json: content hash, rows, dropped rows.
    """

    def __init__(self, folder: Path) -> None:
        self.rows = Dataset.from_file(str(folder / "rows.arrow"))
        self.facts = read_json(folder / "facts.json", "the facts of a cached text")

    def __len__(self) -> int:
        return len(self.rows)

    def cells(self, rows: Sequence[int] | None = None) -> Iterator[str]:
        """Yield every sentence of all rows, or of the rows with these indices, row by row."""
        chosen = self.rows if rows is None else self.rows.select(rows)
        names = [name for name in self.rows.column_names if name != LABEL]
        for batch in chosen.iter(ROWS_AT_ONCE):
            yield from (
                cell
                for row in zip(*(batch[name] for name in names), strict=True)
                for cell in row
                if cell
            )


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
    names, counts = (
        [*map(str, range(source.width)), *([LABEL] if source.labelled else [])],
        Counter(),
    )
    features = Features({name: Value("int64" if name == LABEL else "string") for name in names})
    rows = _rows(source, counts)
    batches = (
        dict(zip(names, zip(*batch, strict=True), strict=True))
        for batch in _batched(rows, ROWS_AT_ONCE)
    )
    write_rows(folder / "rows.arrow", features, batches)
    source.check_unchanged()  # the cache is found by the content
    if not counts["rows"]:
        raise BadInput(f"{source.described}: contains no sentences")
    facts = {"sha256": source.sha256, "columns": len(names), "rows": counts["rows"]}
    facts |= {"empty_lines_dropped": counts["empty"]}
    if source.labelled:
        facts |= {"undecided_rows_dropped": counts["undecided"], "labels": NLI_LABELS}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    logger.info("read %d rows (%d empty ones dropped)", counts["rows"], counts["empty"])


def write_rows(path: Path, features: Features, batches: Iterable[dict[str, Sequence]]) -> None:
    """Write batches of rows, column by column, to an Arrow file, which `Dataset.from_file` maps into memory."""
    with ArrowWriter(features=features, path=str(path), writer_batch_size=ROWS_AT_ONCE) as writer:
        for batch in batches:
            writer.write_batch(batch)
        writer.finalize()


def _batched(rows: Iterator[list], size: int) -> Iterator[list[list]]:
    while batch := [*islice(rows, size)]:
        yield batch


def _rows(source: Source, counts: Counter) -> Iterator[list]:
    """Yield the sentences of each row, then the index of its label if labelled; count rows and dropped ones."""
    read = {"csv": _separated, "text": _separated, "json": _objects}.get(source.reader, _columns)
    for path in source.files:
        for row, cells in read(source, path):
            try:
                texts = [
                    "" if cell is None else _visible(cell) for cell in (cells or ())[: source.width]
                ]
                if source.titled and texts and not texts[1]:
                    texts[:2] = "", texts[0]  # a title without a text is the text
                if not texts or not all(texts[source.titled :]):
                    counts["empty"] += 1
                    continue
                if source.labelled and cells[-1] in _UNDECIDED:
                    counts["undecided"] += 1
                    continue
                if source.labelled:
                    texts.append(_label(cells[-1]))
            except ValueError as error:
                raise BadInput(f"{path}{row}: {brief(error)}") from error
            counts["rows"] += 1
            yield texts


def _label(name: Any) -> int:
    if str(name).strip() not in NLI_LABELS:
        raise ValueError(f"label '{str(name)[:40]}' is not one of {', '.join(NLI_LABELS)}")
    return NLI_LABELS.index(str(name).strip())


def _visible(cell: Any) -> str:
    """A cell without spaces around it; empty if it shows nothing, such as a zero-width space."""
    if not isinstance(cell, str):
        raise ValueError(f"a cell is of type {type(cell).__name__}, not text")
    cell.encode()  # half a surrogate pair, which JSON can have, is no text
    cell = cell.strip()
    return cell if any(map(str.isprintable, cell)) else ""


def _separated(source: Source, path: Path) -> Iterator[Cells]:
    """Yield the rows of a CSV file, or of lines cut at tabs; the first one that is not empty names the columns."""
    columns, width = range(source.columns), None if source.read else source.columns
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
            advice = (
                "quote cells with a comma"
                if source.reader == "csv"
                else "see --text_column and --columns"
            )
            raise BadInput(f"{path}:{number}: {len(cells)} columns, expected {width}; {advice}")


def _split(source: Source, path: Path) -> Iterator[tuple[int, list[str]]]:
    if source.reader == "text":
        for number, line in texts_by_line(path):
            yield number, line.split("\t")
        return
    csv.field_size_limit(_LONGEST_ROW)  # of the module
    number = 0

    def lines() -> Iterator[str]:
        nonlocal number
        for number, line in numbered_lines(path, _LONGEST_ROW):  # noqa: B007 - read below
            yield f"{line}\n"

    try:
        for cells in csv.reader(
            lines(), strict=True
        ):  # otherwise a missing quotation mark would join all that follows
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
    """Yield the objects of a file, one per line or one array; a text in an array is an object with the key `text`."""
    lines = ((number, line) for number, line in numbered_lines(path, _LONGEST_ROW) if line.strip())
    for number, line in lines:
        is_array = line.lstrip().startswith("[")
        content = "\n".join([line, *(text for _, text in lines)]) if is_array else line
        try:
            values = json.loads(content) if is_array else [json.loads(content)]
            records = [
                {"text": value} if is_array and isinstance(value, str) else value
                for value in values
            ]
            if not all(isinstance(record, dict) for record in records):
                raise ValueError("not an object")
        except (ValueError, RecursionError) as error:
            raise BadInput(
                f"{path}:{number}: not JSON, one object per line or one array ({error})"
            ) from error
        yield from (
            (f": row {row}" if is_array else f":{number}", record)
            for row, record in enumerate(records, 1)
        )


def _columns(source: Source, path: Path) -> Iterator[Cells]:
    """Yield the rows of a Parquet or Arrow file; a label of the hub's class type by its name."""
    count = 0
    for schema, batch in _batches(source, path):
        source.check_columns(path, schema.names)
        columns = [batch[name] for name in source.required]
        label = Features.from_arrow_schema(schema).get(source.label) if source.labelled else None
        if isinstance(label, ClassLabel):
            columns[-1] = [
                value if value in _UNDECIDED else label.int2str(value) for value in columns[-1]
            ]
        for cells in zip(*columns, strict=True):
            count += 1
            yield f": row {count}", cells


def _batches(source: Source, path: Path) -> Iterator[tuple[pa.Schema, dict[str, list]]]:
    """Yield the schema of a Parquet or Arrow file, and some rows of its required columns: vectors may be large."""
    try:
        if source.reader == "parquet":
            file = pq.ParquetFile(path)
            schema = file.schema_arrow
            present = [name for name in source.required if name in schema.names]
            batches = file.iter_batches(ROWS_AT_ONCE, columns=present)
        else:
            table = pa.ipc.open_stream(
                pa.memory_map(str(path))
            ).read_all()  # as `datasets` writes it
            schema, present = (
                table.schema,
                [name for name in source.required if name in table.column_names],
            )
            batches = table.select(present).to_batches(ROWS_AT_ONCE)
        for batch in batches:
            yield schema, {name: batch[name].to_pylist() for name in present}
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        KeyError,
    ) as error:  # pyarrow raises all of them on a damaged file
        raise BadInput(f"{path}: cannot be read as {source.reader} ({brief(error)})") from error
