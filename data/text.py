"""Rows of training text, read by `datasets` from files of every kind and kept in a memory-mapped Arrow file.

Cells are stripped; empty rows are dropped and counted. If the library fails or a row is wrong, the file is read again
line by line to report the line.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import datasets
import pyarrow.parquet
from datasets import ClassLabel, Dataset, Features, Value
from datasets.data_files import DataFilesList
from fsspec.compression import register_compression

from common.arguments import LABEL
from common.errors import DISK, BadInput, brief
from common.files import read_json
from data import records
from data.cache import cached
from data.lines import INSPECTED, LONGEST_LINE, numbered_lines, packing, refuse_tables, unpacked
from data.source import Source, root_cause

logger = logging.getLogger(__name__)
NLI_LABELS = ("contradiction", "entailment", "neutral")
ROWS_AT_ONCE = 10_000  # in memory
_BY_LINE = ("csv", "json")  # read by `data.records`
_TEXT = ("string", "large_string", "string_view", "null")

datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # its errors are reported here in one line
for _suffix, _name in ((".xz", "xz"), (".bz2", "bz2"), (".zst", "zstd")):
    # fsspec's readers silently stop early where `data.lines` continues or raises.
    register_compression(_name, lambda stream, mode="rb", suffix=_suffix, **_: unpacked(stream, suffix), _suffix[1:],
                         force=True)  # fmt: skip


class Text:
    """A text in the cache.

    Attributes:
        rows: a `datasets.Dataset` of strings, one column per sentence of a row ("0", "1", "2"); labelled text also has
            `label` (int64, an index into NLI_LABELS).
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
            yield from (cell for row in zip(*(batch[name] for name in names), strict=True) for cell in row if cell)


def read_text(source: Source, cache_dir: str | Path) -> Text:
    """Return the rows of a text, from the cache or read now.

    Raises:
        BadInput: with file and, if possible, line: a file that cannot be opened, is empty, damaged or of another
            format; a column that is missing or not text; a line that is not UTF-8, has a NUL, is longer than
            `LONGEST_LINE` or has the wrong number of columns; a header that is missing or unexpected; an unknown label.
        OSError: the disk is full.
    """
    parse = _Parser(source, _header(source))  # before the cache: whether lines are a text depends on their names too
    return Text(cached(Path(cache_dir) / f"text-{source.key()}", lambda partial: _make(partial, source, parse)))


def column_names(source: Source) -> list[str]:
    """Return the columns of a table, as in its first file, or of lines with a header; none for other lines."""
    if source.kind == "text":
        return _header(source) or []
    with TemporaryDirectory() as raw:
        try:
            if source.kind in _BY_LINE:
                return records.columns(source)
            return _loaded(source, source.files[:1], Path(raw), whole=True).column_names
        except Exception as error:  # whatever the library raises, the file is at fault
            raise _explained(source, _Parser(source, None), error, Path(raw)) from error


def _make(folder: Path, source: Source, parse: "_Parser") -> None:
    with TemporaryDirectory(dir=folder) as raw:
        try:
            table = _loaded(source, source.files, Path(raw))
        except Exception as error:  # whatever the library raises, the files are at fault
            raise _explained(source, parse, error, folder) from error
        parse.check(table.features)
        try:
            table = table.select_columns(parse.read)
            rows = table.map(parse, **map_options(folder / "rows.arrow", table, parse.features), desc="read")
        except BadInput:
            _search(source, parse)
            raise
        except UnicodeDecodeError as error:  # of Parquet, which does not guarantee UTF-8
            raise _explained(source, parse, error, folder) from error
        count = len(rows)
    source.check_unchanged()  # the cache is found by the content
    if not count:
        raise BadInput(f"{describe(source)}: contains no sentences")
    facts = {"sha256": source.sha256, "columns": source.width + source.labelled, "rows": count}
    facts |= {"empty_lines_dropped": parse.empty}
    if source.labelled:
        facts |= {"undecided_rows_dropped": parse.undecided, "labels": NLI_LABELS}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    logger.info("read %d rows (%d empty ones dropped)", count, parse.empty)


def map_options(path: Path, rows: Dataset, features: Features) -> dict:
    """Arguments of `rows.map`: batches with row indices, new columns, an Arrow file."""
    sizes = {"batch_size": ROWS_AT_ONCE, "writer_batch_size": ROWS_AT_ONCE}
    names = {"cache_file_name": str(path), "new_fingerprint": path.stem}  # the library's own would hash the function
    return {"with_indices": True, "batched": True, "remove_columns": rows.column_names, "features": features, **sizes,
            **names}  # fmt: skip


def _loaded(source: Source, files: Sequence[Path], folder: Path, whole: bool = False) -> Dataset:
    """Read the files through the library, by links whose names contain no patterns and show format and compression.

    Of Parquet only the columns that are read, or the `whole` table: others, such as vectors, may be large.
    """
    if source.kind in _BY_LINE:
        return records.load(source, files, _required(source), folder)
    links = []
    for number, path in enumerate(files):
        suffix = "txt" if source.kind == "text" else source.kind
        links.append(folder / f"{number:05}.{suffix}{packing(path)}")
        links[-1].symlink_to(path.resolve())
    options = {}
    if source.kind == "parquet" and not whole:
        present = pyarrow.parquet.read_schema(links[0]).names
        options = {"columns": _required(source)} if {*_required(source)} <= {*present} else {}
    names = DataFilesList([str(link) for link in links], [()] * len(links))  # names, not patterns
    files = {"train": names}
    return datasets.load_dataset(source.kind, data_files=files, split="train", cache_dir=str(folder), **options)


def _header(source: Source) -> list[str] | None:
    """Return the header of files of lines, None if none is read; BadInput for files that are not lines of text."""
    header = None
    for path in source.files if source.kind == "text" else ():
        filled = ((number, line) for number, line in numbered_lines(path) if line.strip())
        first = list(islice(filled, INSPECTED))
        if len(first) <= bool(source.read):
            raise BadInput(f"{path}: contains no sentences (empty, or only empty lines)")
        if source.read:
            number, cells = first[0][0], [cell.strip() for cell in first[0][1].split("\t")]
            if repeated := [name for name in _required(source) if cells.count(name) > 1]:
                raise BadInput(f"{path}:{number}: column '{repeated[0]}' occurs twice in the header")
            missing = [name for name in _required(source) if name not in cells]
            if missing or cells != (header or cells):
                problem = f"has no column '{missing[0]}'" if missing else "differs from that of the first file"
                raise BadInput(f"{path}:{number}: the header {problem} (tab-separated: {', '.join(cells)[:200]})")
            header = cells
        else:
            refuse_tables(path, first[0][0], [line for _, line in first])
    return header


def _required(source: Source) -> list[str]:
    """Return the columns that a table must have."""
    return [*source.read, *([source.label] if source.labelled else [])]


class _Parser:
    """Turns the library's rows into rows of sentences and counts dropped ones; called by `Dataset.map`.

    Args:
        source: the text.
        header: the header of lines of text, if any.
    """

    def __init__(self, source: Source, header: list[str] | None) -> None:
        self.source, self.header = source, header
        self.width = len(header) if header else source.columns
        self.places = [header.index(name) for name in _required(source)] if header else list(range(self.width))
        self.read = ["text"] if source.kind == "text" else _required(source)
        names = [str(number) for number in range(source.width)]
        self.features = Features({name: Value("string") for name in names})
        if source.labelled:
            self.features[LABEL] = Value("int64")
        self.classes: ClassLabel | None = None
        self.empty = self.undecided = 0

    def check(self, columns: Features) -> None:
        """Raise BadInput unless all columns exist and are text; a label may be a ClassLabel."""
        for name in self.read:
            if name not in columns:
                raise BadInput(self.source.no_column(describe(self.source), name, columns))
            if name == self.source.label and isinstance(columns[name], ClassLabel):
                self.classes = columns[name]
            elif getattr(columns[name], "dtype", None) not in _TEXT:
                _search(self.source, self)
                raise BadInput(f"{describe(self.source)}: column '{name}' is {columns[name]}, not text")

    def __call__(self, batch: dict[str, list], numbers: list[int]) -> dict[str, list]:
        rows = []
        for number, *values in zip(numbers, *(batch[name] for name in self.read), strict=True):
            try:
                row = self.row(values)
            except BadInput as error:
                raise BadInput(f"{describe(self.source)}: row {number + 1:,}: {error}") from error
            if row is not None:
                rows.append(row)
        return {name: [row[place] for row in rows] for place, name in enumerate(self.features)}

    def row(self, values: Sequence) -> list | None:
        """Return the cells of a row, or None to drop it. BadInput says what is wrong, not where."""
        cells = self._split(values[0]) if self.source.kind == "text" else values
        if cells is None:
            return None
        texts = [_visible(cell or "") for cell in cells[: self.source.width]]
        if self.source.titled and not texts[1]:
            texts[:2] = "", texts[0]  # a title without a text is the text
        blank = [place for place, text in enumerate(texts) if not text and not (self.source.titled and place == 0)]
        if blank and self.source.kind == "text" and not self.header:
            raise BadInput(f"column {self.places[blank[0]] + 1} is empty")
        if blank:
            self.empty += 1
            return None
        return self._labelled(texts, cells[-1]) if self.source.labelled else texts

    def _split(self, line: str) -> list[str] | None:
        if "\0" in line or len(line) > LONGEST_LINE:
            raise BadInput("not a line of text")  # `numbered_lines` gives the details
        if not _visible(line):
            self.empty += 1
            return None
        cells = [cell.strip() for cell in line.removeprefix("\ufeff").split("\t")]
        if cells == self.header:
            return None
        if len(cells) != self.width:
            hint = "; replace the tabs, or give --text_column for a table with a header, --columns for rows without one"
            hint = hint if self.width == 1 else ""
            raise BadInput(f"{len(cells)} tab-separated columns, expected {self.width}{hint}")
        return [cells[place] for place in self.places]

    def _labelled(self, texts: list[str], label: str | int | None) -> list | None:
        """Append the index of the label; None without a majority label: `-` in SNLI's files, -1 on the hub."""
        if label in ("-", -1, None):
            self.undecided += 1
            return None
        name = self.classes.int2str(label) if self.classes else label.strip()
        if name not in NLI_LABELS:
            raise BadInput(f"label '{name[:40]}' is not one of {', '.join(NLI_LABELS)}")
        return [*texts, NLI_LABELS.index(name)]


def _visible(cell: str) -> str:
    """The cell without spaces around it; empty if it shows nothing, such as a zero-width space."""
    cell = cell.strip()
    return cell if any(map(str.isprintable, cell)) else ""


def _search(source: Source, parse: _Parser) -> None:
    """Read files of lines again; raise BadInput with file and line for the first wrong one."""
    for path in source.files if source.kind == "text" else ():
        for number, line in numbered_lines(path):
            try:
                parse.row([line])
            except BadInput as error:
                raise BadInput(f"{path}:{number}: {error}") from error


def _explained(source: Source, parse: _Parser, error: Exception, folder: Path) -> Exception:
    """Return a one-line error for a file that the library could not read."""
    cause = root_cause(error)
    if (
        isinstance(cause, MemoryError)
        or (source.kind in _BY_LINE and isinstance(cause, BadInput))
        or (isinstance(cause, OSError) and cause.errno in DISK)
    ):
        return cause
    _search(source, parse)
    place = describe(source)
    for path in source.files:
        if _is_empty(source.kind, path):
            return BadInput(f"{path}: contains no sentences")
    for path in source.files if len(source.files) > 1 else ():
        with TemporaryDirectory(dir=folder) as raw:
            try:
                _loaded(source, [path], Path(raw))
            except Exception as alone:
                cause, place = root_cause(alone), path
                break
    return BadInput(f"{place}: cannot be read as {source.kind} ({brief(cause)})")


def _is_empty(kind: str, path: Path) -> bool:
    """Whether a Parquet file has no rows."""
    if kind == "parquet":
        with suppress(pyarrow.ArrowException, OSError):
            return pyarrow.parquet.ParquetFile(path).metadata.num_rows == 0
    return False


def describe(source: Source) -> str:
    """Name the text in a message."""
    more = f" and {len(source.files) - 1} more" if source.files[1:] else ""
    return f"{source.dataset or source.files[0]}{more}"
