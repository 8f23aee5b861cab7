"""BEIR's format (arXiv 2104.08663), read and written: `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`.

Reading is strict: any deviation from the format is an error with file and line, so that a truncated or damaged file
never gets a score. Only the ids and offsets of a corpus stay in memory; its texts are read when they are encoded.
"""

import csv
import hashlib
import json
import logging
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.errors import BadInput
from common.files import writing

logger = logging.getLogger(__name__)
HEADER = ["query-id", "corpus-id", "score"]
_GRADE = re.compile(r"-?[0-9]{1,3}")  # trec_eval reserves memory for every grade up to the highest
_AT_ONCE = 50_000


@dataclass(frozen=True, eq=False)
class BeirCorpus:
    """The documents of one set, on disk.

    Attributes:
        path: the JSON lines.
        ids: strings, (N,), stored in blocks of bytes.
        starts: the byte offset of every line and of the end, (N + 1,) int64.
        sha256: digest of the file.
    """

    path: Path
    ids: pa.ChunkedArray
    starts: np.ndarray
    sha256: str

    def __len__(self) -> int:
        return len(self.ids)

    def texts(self, start: int, stop: int) -> list[str]:
        """Title and text of documents `start` to `stop - 1`, joined by one space."""
        with self.path.open("rb") as file:
            file.seek(self.starts[start])
            return [_document(f"{self.path}:{i + 1}", file.readline())[1] for i in range(start, stop)]

    def all_texts(self) -> Iterator[str]:
        """Title and text of every document, read in blocks."""
        for start in range(0, len(self), _AT_ONCE):
            yield from self.texts(start, min(start + _AT_ONCE, len(self)))

    def index_of(self, ids: list[str]) -> list[int | None]:
        """The index of each id in the corpus; None for unknown ids."""
        return pc.index_in(pa.array(ids, pa.string()), value_set=self.ids).to_pylist()


def read_corpus(path: Path) -> BeirCorpus:
    """Check every line of a corpus and record where it starts; BadInput with file and line."""
    digest, starts, chunks, ids, empty = hashlib.sha256(), array("q", [0]), [], [], 0
    for where, raw in _lines(path):
        name, text = _document(where, raw)
        ids.append(name)
        empty += not text
        starts.append(starts[-1] + len(raw))
        digest.update(raw)
        if len(ids) == _AT_ONCE:
            chunks.append(pa.array(ids, pa.string()))
            ids = []
    chunks.append(pa.array(ids, pa.string()))
    names = pa.chunked_array(chunks)
    _refuse_repeated(path, names)
    if empty:
        logger.info("%s: %d of %d documents are empty", path, empty, len(names))
    return BeirCorpus(path, names, np.frombuffer(starts, dtype=np.int64), digest.hexdigest())


def read_queries(path: Path) -> dict[str, str]:
    """Query id -> text, in file order."""
    queries: dict[str, str] = {}
    for where, raw in _lines(path):
        record = _record(where, raw)
        if record["_id"] in queries:
            raise BadInput(f"{where}: id '{record['_id']}' is already used in an earlier line; ids must be unique")
        queries[record["_id"]] = record["text"]
    return queries


def read_qrels(path: Path, queries: Mapping[str, str], corpus: BeirCorpus) -> dict[str, dict[int, int]]:
    """Judgements: query id -> index of the document in the corpus -> grade.

    The last line must end in a line feed: `q1 d7 1` could be a truncated `q1 d7 10`. Judged documents that are missing
    from the corpus count as not retrieved, as in BEIR: their indices are negative.
    """
    lines = _lines(path)
    where, raw = next(lines)
    if _columns(where, raw) != HEADER:
        raise BadInput(f"{where}: the header must be '{' '.join(HEADER)}', separated by tabs")
    judged: dict[tuple[str, str], tuple[str, int]] = {}
    for where, raw in lines:
        query, document, grade = _judgement(where, raw)
        if query not in queries:
            raise BadInput(f"{where}: query '{query}' is not in queries.jsonl; use qrels and queries of the same set")
        if (query, document) in judged:
            raise BadInput(f"{where}: query '{query}' and document '{document}' are judged twice; keep one line")
        judged[query, document] = (where, grade)
    if not judged:
        raise BadInput(f"{path}:1: no judgements after the header; download the file again")
    qrels: dict[str, dict[int, int]] = {}
    for ((query, _), (_, grade)), index in zip(judged.items(), _indices(path, judged, corpus), strict=True):
        qrels.setdefault(query, {})[index] = grade
    return qrels


def _indices(path: Path, judged: Mapping[tuple[str, str], tuple[str, int]], corpus: BeirCorpus) -> list[int]:
    """The index of each judged document in the corpus; distinct negative numbers for missing ones."""
    indices = corpus.index_of([document for _, document in judged])
    missing = [number for number, index in enumerate(indices) if index is None]
    if 2 * len(missing) > len(indices):
        (_, document), (where, _) = [*judged.items()][missing[0]]
        raise BadInput(f"{where}: document '{document}' is not in {corpus.path}; use files of the same set")
    if missing:  # as in the published ArguAna
        logger.warning("%s: %d of %d judged documents are not in the corpus and count as not retrieved",
                       path, len(missing), len(indices))  # fmt: skip
    return [-1 - number if index is None else index for number, index in enumerate(indices)]


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """("file:line", the raw line); only a line feed ends a line."""
    where = None
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                where = f"{path}:{number}"
                yield where, raw
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
        raise BadInput(f"{path}: {reason}; a BEIR set has corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv") from error
    if where is None:
        raise BadInput(f"{path}:1: the file is empty; download it again")


def _decoded(where: str, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{where}: not UTF-8 (byte {error.start} of the line); convert the file") from error


def _record(where: str, raw: bytes) -> dict[str, str]:
    """Parse a JSON object with strings `_id`, `text` and optionally `title`; other fields are ignored."""
    try:
        record = json.loads(_decoded(where, raw))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}: not valid JSON; the line is truncated or damaged, download the file again") from error
    if not isinstance(record, dict):
        raise BadInput(f"{where}: not a JSON object; each line must be an object with '_id' and 'text'")
    record.setdefault("title", "")
    for name in ("_id", "text", "title"):
        if name not in record:
            raise BadInput(f"{where}: no field '{name}'; each line needs '_id' and 'text'")
        if not isinstance(record[name], str):
            raise BadInput(f"{where}: '{name}' is {type(record[name]).__name__}; it must be a string")
        try:
            record[name].encode()
        except UnicodeEncodeError as error:
            raise BadInput(f"{where}: '{name}' contains an unpaired surrogate; repair the line") from error
    if not record["_id"]:
        raise BadInput(f"{where}: '_id' is empty; every line needs a unique id")
    return record


def _document(where: str, raw: bytes) -> tuple[str, str]:
    record = _record(where, raw)
    return record["_id"], f"{record['title']} {record['text']}".strip()


def _columns(where: str, raw: bytes) -> list[str]:
    if not raw.endswith(b"\n"):
        raise BadInput(f"{where}: no line feed at the end, the file may be truncated; download it again or add one")
    line = _decoded(where, raw).rstrip("\r\n")
    if '"' not in line:
        return line.split("\t")
    try:
        return next(csv.reader([line], delimiter="\t"))  # an id with a quotation mark is quoted, as BEIR writes it
    except csv.Error as error:
        raise BadInput(f"{where}: bad quoting ({error}); repair the line") from error


def _judgement(where: str, raw: bytes) -> tuple[str, str, int]:
    columns = _columns(where, raw)
    if len(columns) != len(HEADER):
        raise BadInput(f"{where}: {len(columns)} columns; expected {', '.join(HEADER)}, separated by tabs")
    if not _GRADE.fullmatch(columns[2]):
        raise BadInput(f"{where}: '{columns[2]}' is not an integer score from -999 to 999")
    return columns[0], columns[1], int(columns[2])


def _refuse_repeated(path: Path, ids: pa.ChunkedArray) -> None:
    counts = pc.value_counts(ids)
    repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        first, second, *_ = np.flatnonzero(pc.equal(ids, repeated[0]).to_numpy()) + 1
        raise BadInput(f"{path}:{second}: id '{repeated[0]}' is already used in line {first}; ids must be unique")


def write_set(
    folder: Path,
    corpus: Iterable[dict[str, str]],
    queries: Iterable[dict[str, str]],
    remedy: str | None = None,
    **qrels: Iterable[tuple[str, str]],
) -> None:
    """Write a set: records with `_id`, `text` and `title`, and by split the relevant (query id, document id).

    `remedy` is that of `common.files.writing`.
    """
    for name, records in (("corpus", corpus), ("queries", queries)):
        with writing(folder / f"{name}.jsonl", remedy) as part, part.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)
    for split, pairs in qrels.items():
        with writing(folder / "qrels" / f"{split}.tsv", remedy) as part, part.open("w", encoding="utf-8") as file:
            csv.writer(file, delimiter="\t", lineterminator="\n").writerows([HEADER, *((*pair, 1) for pair in pairs)])
