"""BEIR's format (arXiv 2104.08663): `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`.

Reading is strict: any deviation from the format is an error with file and line, so that a truncated
or damaged file never gets a score.
"""

import csv
import json
import logging
import re
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from common.errors import BadInput
from common.files import writing

logger = logging.getLogger(__name__)
HEADER = ["query-id", "corpus-id", "score"]
_GRADE = re.compile(r"-?[0-9]{1,3}")  # trec_eval reserves memory for every grade up to the highest


def read_records(path: Path, title: bool) -> dict[str, str]:
    """Id -> text of documents, with the title before it, or of queries; in file order."""
    records: dict[str, str] = {}
    for where, raw in _lines(path):
        name, text = _record(where, raw, title)
        if name in records:
            raise BadInput(f"{where}: id '{name}' is already used; ids must be unique")
        records[name] = text
    return records


def read_qrels(
    path: Path, queries: Container[str], corpus: Container[str]
) -> dict[str, dict[str, int]]:
    """Judgements: query id -> document id -> grade.

    The last line must end in a line feed: `q1 d7 1` could be a truncated `q1 d7 10`. Judged
    documents that are missing from the corpus count as not retrieved, as in BEIR.
    """
    qrels: dict[str, dict[str, int]] = {}
    count = missing = 0
    for where, raw in _lines(path):
        cells, first = _cells(raw), where == f"{path}:1"
        if first and cells == HEADER:
            continue
        query, document, grade = cells or ("", "", "")
        known = query in queries and document not in qrels.get(query, ())
        if first or not known or not _GRADE.fullmatch(grade):
            raise BadInput(
                f"{where}: expected {', '.join(HEADER)} separated by tabs, an integer score, a "
                "query of queries.jsonl, each pair once, and a line feed at the end; repair the "
                "line, or download the file again"
            )
        qrels.setdefault(query, {})[document] = int(grade)
        count, missing = count + 1, missing + (document not in corpus)
    said = f"{path}: {missing} of {count} judged documents are not in corpus.jsonl"
    if 2 * missing > count:
        raise BadInput(f"{said}; use files of the same set")
    if missing:  # as in the published ArguAna
        logger.warning("%s and count as not retrieved", said)
    return qrels


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


def _record(where: str, raw: bytes, title: bool) -> tuple[str, str]:
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
