"""BEIR's format (arXiv 2104.08663): `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`.

Reading is strict: any deviation from the format is an error with file and line, so that a truncated
or damaged file never gets a score. Only the ids and offsets of a corpus stay in memory; its texts
are read when they are encoded.
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
from typing import NamedTuple

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
            return [_record(f"{self.path}:{i + 1}", file.readline())[1] for i in range(start, stop)]

    def all_texts(self) -> Iterator[str]:
        """Title and text of every document, read in blocks."""
        for start in range(0, len(self), _AT_ONCE):
            yield from self.texts(start, min(start + _AT_ONCE, len(self)))

    def index_of(self, ids: list[str]) -> list[int | None]:
        """The index of each id in the corpus; None for unknown ids."""
        return pc.index_in(pa.array(ids, pa.string()), value_set=self.ids).to_pylist()


def read_corpus(path: Path) -> BeirCorpus:
    """Check every line of a corpus and record where it starts; BadInput with file and line."""
    digest, starts, chunks, ids = hashlib.sha256(), array("q", [0]), [], []
    for where, raw in _lines(path):
        ids.append(_record(where, raw)[0])
        starts.append(starts[-1] + len(raw))
        digest.update(raw)
        if len(ids) == _AT_ONCE:
            chunks.append(pa.array(ids, pa.string()))
            ids = []
    chunks.append(pa.array(ids, pa.string()))
    names = pa.chunked_array(chunks)
    _refuse_repeated(path, names)
    return BeirCorpus(path, names, np.frombuffer(starts, dtype=np.int64), digest.hexdigest())


def read_queries(path: Path) -> dict[str, str]:
    """Query id -> text, in file order."""
    queries = [_record(where, raw, title=False) for where, raw in _lines(path)]
    _refuse_repeated(path, pa.chunked_array([pa.array([name for name, _ in queries], pa.string())]))
    return dict(queries)


def read_qrels(
    path: Path, queries: Mapping[str, str], corpus: BeirCorpus
) -> dict[str, dict[int, int]]:
    """Judgements: query id -> index of the document in the corpus -> grade.

    The last line must end in a line feed: `q1 d7 1` could be a truncated `q1 d7 10`. Judged
    documents that are missing from the corpus count as not retrieved, as in BEIR: their indices are
    negative.
    """
    judged: dict[tuple[str, str], Judgement] = {}
    for where, raw in _lines(path):
        cells = _cells(raw)
        if where == f"{path}:1" and cells == HEADER:
            continue
        query, document, grade = cells or ("", "", "")
        first = where == f"{path}:1"
        if (
            first
            or query not in queries
            or (query, document) in judged
            or not _GRADE.fullmatch(grade)
        ):
            raise BadInput(
                f"{where}: expected {', '.join(HEADER)} separated by tabs, an integer score, a "
                "query of queries.jsonl, each pair once, and a line feed at the end; repair the "
                "line, or download the file again"
            )
        judged[query, document] = Judgement(where, document, int(grade))
    indices = corpus.index_of([document for _, document in judged])
    pairs = zip(judged.values(), indices, strict=True)
    missing = [judgement for judgement, index in pairs if index is None]
    if 2 * len(missing) > len(indices):
        said = f"document '{missing[0].document}' is not in {corpus.path}"
        raise BadInput(f"{missing[0].where}: {said}; use files of the same set")
    if missing:  # as in the published ArguAna
        message = "%s: %d of %d judged documents are not in the corpus and count as not retrieved"
        logger.warning(message, path, len(missing), len(indices))
    qrels: dict[str, dict[int, int]] = {}
    for number, ((query, _), judgement) in enumerate(judged.items()):
        index = indices[number]
        graded = qrels.setdefault(query, {})
        graded[-1 - number if index is None else index] = judgement.grade
    return qrels


class Judgement(NamedTuple):
    """Where it stands, "file:line", and the grade of a document."""

    where: str
    document: str
    grade: int


def _cells(raw: bytes) -> list[str] | None:
    """The three cells of a line; None if it is damaged."""
    try:
        line = raw.decode("utf-8-sig").rstrip("\r\n")
        cells = line.split("\t")
        if '"' in line:  # an id with a quotation mark is quoted, as BEIR writes it
            [cells] = csv.reader([line], delimiter="\t")
    except (ValueError, csv.Error):
        return None
    return cells if raw.endswith(b"\n") and len(cells) == 3 else None


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """("file:line", the raw line); only a line feed ends a line."""
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                yield f"{path}:{number}", raw
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
        raise BadInput(
            f"{path}: {reason}; a BEIR set has corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv"
        ) from error


def _record(where: str, raw: bytes, title: bool = True) -> tuple[str, str]:
    """Id and text of a JSON object with strings `_id`, `text` and perhaps `title`, put before."""
    try:
        record = json.loads(raw.decode("utf-8-sig"))
        name, heading, text = record["_id"], record.get("title", ""), record["text"]
        (name + heading + text).encode()  # an unpaired surrogate is no text
        valid = isinstance(name, str) and name
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        valid = False
    if not valid:
        raise BadInput(
            f"{where}: not a JSON object in UTF-8 with strings '_id', 'text' and perhaps 'title'; "
            "the line is damaged, download the file again"
        )
    return name, f"{heading} {text}".strip() if title else text


def _refuse_repeated(path: Path, ids: pa.ChunkedArray) -> None:
    counts = pc.value_counts(ids)
    repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        first, second, *_ = np.flatnonzero(pc.equal(ids, repeated[0]).to_numpy()) + 1
        raise BadInput(
            f"{path}:{second}: id '{repeated[0]}' is already used in line {first}; ids must be "
            "unique"
        )


def write_set(
    folder: Path,
    corpus: Iterable[dict[str, str]],
    queries: Iterable[dict[str, str]],
    relevant: Iterable[tuple[str, str]],
) -> None:
    """Write a set: records with `_id`, `text` and `title`; pairs of query id and document id."""
    for name, records in (("corpus", corpus), ("queries", queries)):
        with writing(folder / f"{name}.jsonl") as part, part.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)
    with writing(folder / "qrels" / "test.tsv") as part, part.open("w", encoding="utf-8") as file:
        rows = csv.writer(file, delimiter="\t", lineterminator="\n")
        rows.writerow(HEADER)
        rows.writerows((*pair, 1) for pair in relevant)
