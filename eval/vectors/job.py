"""Encode shards of text (lines or a Parquet column); each gets a record, so that a later run can resume."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from common.errors import BadInput, first_line
from common.files import open_regular, read_json, sha256, write_json
from eval.encode import Encoder
from eval.vectors.store import VectorStore, claim, refuse_foreign

ROWS = 20_000  # texts held at once
Lines = Callable[[Path], Iterator[tuple[int, str]]]  # a text file -> (number, line), as `data.lines.texts_by_line`
_PACKED, _KINDS = (".gz", ".xz", ".bz2", ".zst"), (".txt", ".parquet")
_PARQUET = b"PAR1"
_FIELDS = {"sha256": str, "rows": int, "width": int, "files": dict}
_REMOVE = "remove it to compute the shard again"
_REPLACED = "already exists and would be overwritten; choose another --output"


@dataclass(frozen=True)
class Job:
    """How to encode shards; picklable, for other processes and machines.

    Attributes:
        make_encode: device -> an encoder with `identity` and `max_length`, like `eval.encode.Encode`.
        lines: reads text files.
        store: where to write the vectors.
        column: of Parquet inputs.
    """

    make_encode: Callable[[str], Encoder]
    lines: Lines
    store: VectorStore
    column: str = "text"

    @property
    def folder(self) -> Path:
        return self.store.folder

    def outputs(self, path: Path) -> list[Path]:
        """The files of one shard: the vectors and, last, the record, which marks the shard as done."""
        stem = stem_of(path)
        return [*self.store.files(stem), self.folder / f"{stem}.done.json"]

    def check(self, paths: Sequence[Path]) -> None:
        """Raise BadInput if a shard cannot be opened, two share an output, or the folder or a file there is foreign."""
        sources: dict[Path, Path] = {}
        for path in paths:
            for output in self.outputs(path):
                if output in sources:
                    raise BadInput(f"{sources[output]} and {path} would both be written to {output}; rename one")
                sources[output] = path
        inputs = {path.resolve() for path in paths}
        refuse_foreign(self.folder)
        for output in sources:
            if output.resolve() in inputs:
                raise BadInput(f"{output}: {_REPLACED}")
        for path in paths:
            check_readable(path, self.column, self.lines)

    def start(self, device: str) -> Encoder:
        """Make the encoder and check that the folder belongs to its vectors."""
        encode = self.make_encode(device)
        manifest = {"model": encode.identity, "max_length": encode.max_length, "format": self.store.format,
                    "dtype": self.store.dtype}  # fmt: skip
        claim(self.folder, manifest)
        return encode

    def encode_shard(self, encode: Encoder, path: Path) -> dict:
        """Write one shard's vectors unless they exist, and return its record.

        Returns:
            source, sha256, rows, width and files; `new`: whether it was computed now; `damaged`: why it was computed
            again, or None.

        Raises:
            BadInput: as `pieces`; or the text has changed since or while it was encoded, or the record is damaged.
        """
        open_regular(path).close()  # BadInput for a missing file or a pipe
        source, damaged = sha256(path), None
        *outputs, record = self.outputs(path)
        done = self._read_record(record, path, source) if record.is_file() else None
        if done and all(output.is_file() for output in outputs):
            damaged = self._damage(done, path)
            if damaged is None:
                return {**done, "new": False, "damaged": None}
        reservation = self._reserve(path, source, outputs, done is not None)
        record.unlink(missing_ok=True)  # from here on the shard is not done
        try:
            rows, width = self.store.write(stem_of(path), map(encode, self._pieces(path, source)))
        except BaseException:
            if not any(output.exists() for output in outputs):
                reservation.unlink(missing_ok=True)
            raise
        facts = {"source": path.name, "sha256": source, "rows": rows, "width": width, **self._column(path)}
        facts["files"] = {output.name: sha256(output) for output in outputs}
        write_json(record, facts)
        reservation.unlink(missing_ok=True)
        return {**facts, "new": True, "damaged": damaged}

    def _pieces(self, path: Path, source: str) -> Iterator[list[str]]:
        """`pieces` of a text with this sha256; BadInput at the end, before the vectors get their name."""
        yield from pieces(path, self.column, self.lines)
        if sha256(path) != source:
            raise BadInput(f"{path}: changed while it was encoded; run the command again")

    def _read_record(self, record: Path, path: Path, source: str) -> dict:
        content = read_json(record, "the record of a shard", _REMOVE, fields=_FIELDS)
        self._reservation(path, content["sha256"]).unlink(missing_ok=True)  # of a command killed after the record
        if content["sha256"] != source:
            raise BadInput(f"{path}: the text has changed since {record} was written; {_REMOVE}")
        return content

    def _damage(self, record: dict, path: Path) -> str | None:
        """`VectorStore.damage` of a finished shard; BadInput if it was encoded from another column."""
        for name, now in self._column(path).items():
            if record.get(name, now) != now:
                problem = f"it was encoded from column '{record[name]}', not '{now}'"
                raise BadInput(f"{path}: {problem}; choose another --output")
        return self.store.damage(stem_of(path), record["rows"], record["width"], record["files"])

    def _reserve(self, path: Path, source: str, outputs: list[Path], done: bool) -> Path:
        """Create the file that reserves a shard's outputs for one text until its record exists.

        Raises:
            BadInput: another text with the same name is being encoded, or an output exists without a record.
        """
        stem = stem_of(path)
        pattern = re.compile(re.escape(stem) + r"\.[0-9a-f]{16}\.begun")
        reservation = self._reservation(path, source)
        if not reservation.exists() and not done and (existing := [output for output in outputs if output.exists()]):
            raise BadInput(f"{existing[0]}: {_REPLACED}")
        reservation.touch()
        others = [file for file in self.folder.iterdir() if pattern.fullmatch(file.name) and file != reservation]
        if others:
            reservation.unlink(missing_ok=True)
            raise BadInput(
                f"{path}: another text with this name is being written to {outputs[0]}; rename one or, if no other "
                f"command is running, remove {others[0]}"
            )
        return reservation

    def _reservation(self, path: Path, source: str) -> Path:
        return self.folder / f"{stem_of(path)}.{source[:16]}.begun"

    def _column(self, path: Path) -> dict[str, str]:
        return {"column": self.column} if is_parquet(path) else {}


def stem_of(path: Path) -> str:
    """The name of a shard's outputs: the file name without `.gz`, `.xz`, `.bz2`, `.zst`, then `.txt`, `.parquet`."""
    name = path.name
    for endings in (_PACKED, _KINDS):
        name = next((name.removesuffix(ending) for ending in endings if name.endswith(ending)), name)
    return name


def pieces(path: Path, column: str, lines: Lines) -> Iterator[list[str]]:
    """The texts of a shard in order, at most `ROWS` at a time; an empty line is an empty text, so no row is lost.

    Raises:
        BadInput: with file and line or row: the file is missing, empty or damaged, lacks the column, or is not UTF-8.
    """
    texts = _cells(path, column) if is_parquet(path) else (text for _, text in lines(path))
    piece = list(islice(texts, ROWS))
    if not piece:
        raise BadInput(f"{path}: contains no text; remove it from the inputs")
    while piece:
        yield piece
        piece = list(islice(texts, ROWS))


def check_readable(path: Path, column: str, lines: Lines) -> None:
    """Raise BadInput, as `pieces`, if not even the schema or the first line can be read."""
    if not is_parquet(path):
        next(iter(lines(path)), None)
        return
    try:
        with pq.ParquetFile(path) as file:
            _check_column(path, file.schema_arrow, column)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, 0, error) from error


def is_parquet(path: Path) -> bool:
    """Whether a file starts like Parquet, whatever its name."""
    with open_regular(path) as file:
        return file.read(len(_PARQUET)) == _PARQUET


def _cells(path: Path, column: str) -> Iterator[str]:
    row = 0
    try:
        with pq.ParquetFile(path) as file:
            _check_column(path, file.schema_arrow, column)
            for batch in file.iter_batches(ROWS, columns=[column]):
                texts = batch.column(0)
                texts.validate(full=True)  # Parquet does not guarantee UTF-8
                if texts.null_count:
                    place = row + texts.is_null().index(True).as_py() + 1
                    raise BadInput(f"{path}: row {place}: '{column}' is null; write an empty text or remove the row")
                row += len(texts)
                yield from texts.to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, row, error) from error


def _damaged(path: Path, row: int, error: Exception) -> BadInput:
    return BadInput(f"{path}: after row {row}: not a complete Parquet file of UTF-8 text ({first_line(error)})")


def _check_column(path: Path, schema: pa.Schema, column: str) -> None:
    if column not in schema.names:
        raise BadInput(f"{path}: no column '{column}'; set --column to one of: {', '.join(schema.names)}")
    kind = schema.field(column).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise BadInput(f"{path}: column '{column}' is {kind}, not string; choose another --column")
