"""Token ids of a text, made once: one flat buffer and the offsets of every sentence in it.

A cache folder holds `ids.npy` (int32), `offsets.npy` (int64, (rows, columns + 1): sentence c of row r lies
between offsets[r, c] and offsets[r, c + 1]), optionally `labels.npy`, and `facts.json`. It is keyed by the content
of the files, the reader's version and the tokenizer, never by names or times. Ids are stored without special
tokens and without a length limit; the collator adds the ones and applies the other.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import chain, compress, islice
from pathlib import Path

import numpy as np
from tqdm.auto import tqdm

from common.errors import BadInput, StorageError
from common.growing import GrowingArray
from data import draws
from data.cache import cached
from data.labelled import NLI_LABELS, LabelledReader, reader_of
from data.reader import VERSION, Reader, content_hash

logger = logging.getLogger(__name__)
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class Sample:
    """Some rows of a text, drawn without replacement."""

    count: int
    seed: int

    def rows(self, total: int) -> np.ndarray:
        """The numbers of the rows among `total`, in the order they were drawn; BadInput for more than there are."""
        if not 1 <= self.count <= total:
            raise BadInput(f"--max_rows {self.count}: the text has {total:,} rows")
        return draws.permutation(self.seed, 0, total, "sample")[: self.count]

    def mask(self, total: int) -> bytes:
        """One byte a row: 1 where it was drawn."""
        drawn = np.zeros(total, dtype=np.uint8)
        drawn[self.rows(total)] = 1
        return drawn.tobytes()


class Corpus:
    """Rows of token ids, read from memory-mapped files.

    Attributes:
        ids: (tokens,) int32.
        offsets: (rows, columns + 1) int64.
        labels: (rows,) int64, or None.
        facts: what run.json records of the text: content hash, rows, dropped lines.
    """

    def __init__(self, folder: str | Path, offsets: np.ndarray | None = None, labels: np.ndarray | None = None) -> None:
        self.folder = Path(folder)
        self.ids = _mapped(self.folder / "ids.npy")
        self.offsets = _mapped(self.folder / "offsets.npy") if offsets is None else offsets
        stored = self.folder / "labels.npy"
        self.labels = _mapped(stored) if labels is None and stored.exists() else labels
        self.facts = json.loads((self.folder / "facts.json").read_text(encoding="utf-8"))

    def __reduce__(self):
        # A worker process opens the files itself; a pickled memory map would be a copy of all tokens.
        own = (None if isinstance(part, np.memmap) else part for part in (self.offsets, self.labels))
        return Corpus, (self.folder, *own)

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def columns(self) -> int:
        return self.offsets.shape[1] - 1

    def ordered(self, rows: np.ndarray) -> Corpus:
        """The rows of these numbers, in this order."""
        return Corpus(self.folder, self.offsets[rows], None if self.labels is None else self.labels[rows])

    def sentences(self, rows: Sequence[int], column: int, longest: int) -> tuple[np.ndarray, np.ndarray]:
        """The first `longest` ids of several sentences, one after the other, and their lengths: (tokens,), (B,)."""
        starts = self.offsets[rows, column]
        lengths = np.minimum(self.offsets[rows, column + 1] - starts, longest)
        shift = starts - (np.cumsum(lengths) - lengths)  # from a place in the answer to that in the buffer
        return self.ids[np.repeat(shift, lengths) + np.arange(lengths.sum())], lengths


def _mapped(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r")
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        said = f"{path}: {path.stat().st_size / 1e6:,.1f} MB cannot be mapped into memory"
        raise StorageError(f"{said}; raise the limit (`ulimit -v`, or that of the job)") from error


def load_corpus(
    paths: Sequence[str | Path],
    tokenizer,
    columns: int | None,
    cache_dir: str | Path,
    sample: Sample | None = None,
) -> Corpus:
    """The token ids of the files, from the cache or made now.

    `columns` are the sentences of a row; None for files of premise, hypothesis and label. Of a `sample` only its rows
    are tokenised, and stand in the order they were drawn.

    Raises:
        BadInput: as `data.reader.Reader`; a sentence that gives no token; a sample larger than the text.
        StorageError: too little memory to map the ids.
    """
    reader, content = reader_of(paths, columns), content_hash(paths)
    # Truncation and padding are whatever the tokenizer's last call left there; ids here have neither.
    rules = json.loads(tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}
    identity = json.dumps([content, VERSION, columns, rules, *([astuple(sample)] if sample else [])])
    folder = Path(cache_dir) / hashlib.sha256(identity.encode()).hexdigest()[:32]
    corpus = Corpus(cached(folder, lambda partial: _build(partial, reader, tokenizer, content, sample)))
    if sample is None:
        return corpus
    drawn = sample.rows(corpus.facts["rows"])
    return corpus.ordered(np.argsort(np.argsort(drawn)))  # they are stored in the order of the text


def write_corpus(folder: Path, rows: Iterator[tuple[Sequence[Sequence[int]], int | None]], facts: dict) -> None:
    """Write rows of (token ids of each sentence, label or None) as a cache folder; labels for all rows or none.

    Holds `_ROWS_AT_ONCE` rows, however many there are.
    """
    rows = iter(rows)
    with (
        GrowingArray(folder / "ids.npy", np.int32) as buffer,
        GrowingArray(folder / "offsets.npy", np.int64) as offsets,
        GrowingArray(folder / "labels.npy", np.int64) as labels,
    ):
        while chunk := list(islice(rows, _ROWS_AT_ONCE)):
            sentences = [ids for row, _ in chunk for ids in row]
            ends = buffer.shape[0] + np.cumsum([len(ids) for ids in sentences]).reshape(len(chunk), -1)
            starts = np.append(buffer.shape[0], ends[:-1, -1])
            offsets.append(np.column_stack([starts, ends]))
            buffer.append(np.fromiter(chain.from_iterable(sentences), dtype=np.int32))
            if chunk[0][1] is not None:
                labels.append(np.array([label for _, label in chunk]))
    (folder / "facts.json").write_text(json.dumps({**facts, "rows": offsets.shape[0]}), encoding="utf-8")


def _build(folder: Path, reader: Reader, tokenizer, content: str, sample: Sample | None) -> None:
    rows = enumerate(reader, start=1)
    if sample is not None:
        total = sum(1 for _ in reader)  # counted beforehand: the draw depends on it
        rows = compress(rows, sample.mask(total))
    write_corpus(folder, _tokenised(reader, rows, tokenizer), {})
    facts = {"sha256": content, "columns": reader.columns, "rows": reader.rows}
    facts |= {"empty_lines_dropped": reader.empty_lines}
    if isinstance(reader, LabelledReader):
        facts |= {"undecided_rows_dropped": reader.undecided, "labels": NLI_LABELS}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    count = reader.rows if sample is None else sample.count
    logger.info("tokenised %d of %d rows (%d empty lines dropped)", count, reader.rows, reader.empty_lines)


def _tokenised(
    reader: Reader, rows: Iterable[tuple[int, tuple[str, ...]]], tokenizer
) -> Iterator[tuple[list[list[int]], int | None]]:
    """The ids and the label of every row; `rows` are rows of the reader with their numbers."""
    rows, labelled = iter(rows), isinstance(reader, LabelledReader)
    columns = reader.columns - labelled
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # both may be left from the tokenizer's last call
    backend.no_padding()
    with tqdm(desc="tokenise", unit="row", unit_scale=True, leave=False) as bar:
        while chunk := list(islice(rows, _ROWS_AT_ONCE)):
            sentences = [sentence for _, row in chunk for sentence in row[:columns]]
            ids = [found.ids for found in backend.encode_batch_fast(sentences, add_special_tokens=False)]
            if [] in ids:
                place = ids.index([])
                found, row = ascii(sentences[place][:40]), chunk[place // columns][0]
                where = f"row {row:,} of {reader.paths[0]}" + (" and the files after it" if reader.paths[1:] else "")
                raise BadInput(f"{where}, empty lines not counted: the tokenizer finds no token in {found}; remove it")
            for number, (_, row) in enumerate(chunk):
                label = NLI_LABELS.index(row[-1]) if labelled else None
                yield ids[number * columns : (number + 1) * columns], label
            bar.update(len(chunk))
