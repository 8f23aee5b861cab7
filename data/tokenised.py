"""Token ids of a text, made once: one flat buffer and the offsets of every sentence in it.

A cache folder holds `ids.npy` (int32), `offsets.npy` (int64, (rows, columns + 1): sentence c of row r lies between
offsets[r, c] and offsets[r, c + 1]), optionally `labels.npy`, and `facts.json`. Its key is the content of the files,
the reader's version and the tokenizer, never names or times. Ids are stored without special tokens and without a length
limit; the collator applies both.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
from array import array
from bisect import bisect_left
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
from data.text import NLI_LABELS, VERSION, LabelledReader, Reader, content_hash, reader_of

logger = logging.getLogger(__name__)
_ROWS_AT_ONCE = 10_000  # tokenised and written
_TOKENS_AT_ONCE = 2**22  # searched for the starts of words
_COMPARED_AT_ONCE = 50_000  # rows
EXAMINED = 1_000_000  # examples searched for equal ones, so that a longer text starts no later


@dataclass(frozen=True)
class Sample:
    """Some rows of a text, drawn without replacement."""

    count: int
    seed: int

    def rows(self, total: int) -> np.ndarray:
        """Numbers of the drawn rows, in the order of the draw; BadInput if `total` is smaller than `count`."""
        if not 1 <= self.count <= total:
            raise BadInput(f"--max_rows {self.count}: the text has {total:,} rows")
        return draws.permutation(self.seed, 0, total, "sample")[: self.count]

    def mask(self, total: int) -> bytes:
        """One byte a row: 1 for a drawn one."""
        drawn = np.zeros(total, dtype=np.uint8)
        drawn[self.rows(total)] = 1
        return drawn.tobytes()


class TokenisedText:
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
        # A worker process maps the files itself; a pickled memory map would be a copy of all tokens.
        own = (None if isinstance(part, np.memmap) else part for part in (self.offsets, self.labels))
        return TokenisedText, (self.folder, *own)

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def columns(self) -> int:
        return self.offsets.shape[1] - 1

    def ordered(self, rows: np.ndarray) -> TokenisedText:
        """The rows of these numbers, in this order."""
        return TokenisedText(self.folder, self.offsets[rows], None if self.labels is None else self.labels[rows])

    def sentences(self, rows: Sequence[int], column: int, longest: int) -> tuple[np.ndarray, np.ndarray]:
        """The first `longest` ids of B sentences, concatenated, and their lengths: (tokens,), (B,)."""
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


def load_tokenised(
    paths: Sequence[str | Path],
    tokenizer,
    columns: int | None,
    cache_dir: str | Path,
    sample: Sample | None = None,
) -> TokenisedText:
    """The token ids of files, from the cache or made now.

    Args:
        paths: the files.
        tokenizer: a fast tokenizer.
        columns: sentences in a row; None for files of premise, hypothesis and label.
        cache_dir: holds a folder for every text.
        sample: only these rows are tokenised; they come in the order of the draw.

    Raises:
        BadInput: as `data.text.Reader`; a sentence without a token; a sample larger than the text.
        StorageError: too little memory to map the ids.
    """
    reader, content = reader_of(paths, columns), content_hash(paths)
    # The tokenizer's last call may have left truncation and padding; ids have neither.
    rules = json.loads(tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}
    identity = json.dumps([content, VERSION, columns, rules, *([astuple(sample)] if sample else [])])
    folder = Path(cache_dir) / hashlib.sha256(identity.encode()).hexdigest()[:32]
    text = TokenisedText(cached(folder, lambda partial: _build(partial, reader, tokenizer, content, sample)))
    if sample is None:
        return text
    drawn = sample.rows(text.facts["rows"])
    return text.ordered(np.argsort(np.argsort(drawn)))  # they are stored in the order of the text


def write_tokenised(folder: Path, rows: Iterable[tuple[Sequence[Sequence[int]], int | None]], facts: dict) -> None:
    """Write a cache folder from rows of (token ids of each sentence, label or None); labels for all rows or none.

    At most `_ROWS_AT_ONCE` rows are in memory.
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
        total = sum(1 for _ in reader)  # counted first: the draw depends on it
        rows = compress(rows, sample.mask(total))
    write_tokenised(folder, _tokenise(reader, rows, tokenizer), {})
    facts = {"sha256": content, "columns": reader.columns, "rows": reader.rows}
    facts |= {"empty_lines_dropped": reader.empty_lines}
    if isinstance(reader, LabelledReader):
        facts |= {"undecided_rows_dropped": reader.undecided, "labels": NLI_LABELS}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    count = reader.rows if sample is None else sample.count
    logger.info("tokenised %d of %d rows (%d empty lines dropped)", count, reader.rows, reader.empty_lines)


def _tokenise(
    reader: Reader, rows: Iterator[tuple[int, tuple[str, ...]]], tokenizer
) -> Iterator[tuple[list[list[int]], int | None]]:
    """The ids and the label of every row; `rows` are numbered rows of the reader."""
    labelled = isinstance(reader, LabelledReader)
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


def in_blocks(text: TokenisedText, length: int, starts_word: np.ndarray) -> TokenisedText:
    """Running text as consecutive blocks of at most `length` ids, for masked language modelling.

    A block ends at the last word that fits, so no word is cut (unless it is longer than a block). Lines follow each
    other without a separator, like paragraphs. A shorter last block is kept.

    Args:
        text: one column; its rows are consecutive in `ids`.
        length: ids in a block, without special tokens.
        starts_word: (vocabulary,) whether a token begins a word (`data.tokenizer.word_starts`).
    """
    if length < 1:
        raise BadInput("--max_length: the special tokens leave no room for text")
    total, cuts = len(text.ids), array("q", [0])
    while total - cuts[-1] > length:
        end = min(cuts[-1] + max(_TOKENS_AT_ONCE, length + 1), total)
        _cut(cuts, _word_starts(text, cuts[-1], end, starts_word), end, length)
    cuts.append(total)
    made = np.frombuffer(cuts, dtype=np.int64)
    return TokenisedText(text.folder, np.stack([made[:-1], made[1:]], axis=1))


def _cut(cuts: array, boundaries: np.ndarray, end: int, length: int) -> None:
    """Add the ends of all blocks that end before `end`, wherever their last word ends."""
    position = cuts[-1]
    while end - position > length:
        candidate = boundaries[np.searchsorted(boundaries, position + length, side="right") - 1]
        position = int(candidate) if candidate > position else position + length
        cuts.append(position)


def _word_starts(text: TokenisedText, first: int, end: int, starts_word: np.ndarray) -> np.ndarray:
    """Places from `first` to `end - 1` at which a word begins; `first` is one."""
    words = starts_word[text.ids[first:end]]
    rows = text.offsets[:, 0]  # NumPy's search would copy the whole column
    lines = np.array(rows[bisect_left(rows, first) : bisect_left(rows, end)])
    words[lines - first] = True  # a line begins a word, whatever its first token looks like
    words[0] = True
    return first + np.flatnonzero(words)


def false_negatives(text: TokenisedText, sampler: draws.KeyedSampler, longest: int) -> tuple[int, int]:
    """How many of the first epoch's examples share their batch with an equal one, and how many were examined.

    Args:
        text: rows of sentences; only the first sentence of a row counts.
        sampler: of the batches; a smaller last batch is not trained on.
        longest: tokens of a sentence that are read.
    """
    size = min(sampler.batch_size, sampler.count)
    count = min(sampler.count, EXAMINED) // size * size
    order = np.fromiter(islice(sampler.order(0), count), dtype=np.int64, count=count)
    rows = np.sort(_fingerprints(text, order, longest).reshape(-1, size), axis=1)
    same = rows[:, 1:] == rows[:, :-1]
    edge = np.zeros((len(rows), 1), dtype=bool)
    return int((np.hstack([edge, same]) | np.hstack([same, edge])).sum()), count


def _fingerprints(text: TokenisedText, chosen: np.ndarray, longest: int) -> np.ndarray:
    """64 bits of each row's first sentence, (rows,): a sum over its tokens of a hash of (token, position)."""
    parts = []
    for start in range(0, len(chosen), _COMPARED_AT_ONCE):
        ids, lengths = text.sentences(chosen[start : start + _COMPARED_AT_ONCE], 0, longest)
        first = np.cumsum(lengths) - lengths
        positions = np.arange(len(ids)) - np.repeat(first, lengths)
        parts.append(np.add.reduceat(draws.keys(0, positions, ids, "equal"), first))
    return np.concatenate(parts)
