"""Token ids of a text, computed once and kept in an Arrow file: a list for every sentence.

A cache folder contains `ids.arrow` (columns "0", "1", "2" of lists of int32, and `label` for
labelled text) and `facts.json`. Its key is the content of the files, how they are read, and the
tokenizer, never names or times. Ids are stored without special tokens and without a length limit;
the collator applies both.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from common.arguments import LABEL
from common.errors import BadInput
from common.files import read_json, write_json
from common.folders import cached
from common.progress import progress
from data import draws
from data.source import Source
from data.text import ROWS_AT_ONCE, read_text, write_rows
from data.tokenizer import decoder_of, word_starts

if TYPE_CHECKING:
    from datasets import Dataset

Rows = Sequence[int] | np.ndarray  # numbers of rows, (B,)
_READ_AT_ONCE = 50_000  # rows
EXAMINED = 1_000_000  # examples counted, so that a longer text does not start later
WHOLE = np.iinfo(np.int32).max  # no length limit


@dataclass(frozen=True)
class Sample:
    """Some rows, drawn without replacement; `repeated`: as often as they fit into the text."""

    count: int
    seed: int
    repeated: bool = False

    def rows(self, total: int) -> np.ndarray:
        """Indices of the drawn rows, in the order of the draw; BadInput if there are too few."""
        if not 1 <= self.count <= total:
            raise BadInput(f"--max_rows {self.count}: the text has {total:,} rows")
        drawn = draws.permutation(self.seed, 0, total, "sample")[: self.count]
        return np.tile(drawn, total // self.count) if self.repeated else drawn


class TokenisedText:
    """Rows of token ids, read without copies from a memory-mapped file.

    Attributes:
        columns: sentences per row.
        labels: (rows,) int64, or None.
        facts: the text's facts for run.json: content hash, rows, dropped lines.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.facts = read_json(self.folder / "facts.json", "the facts of a cached text")
        # The whole file as 32-bit integers.
        self._file = np.asarray(np.memmap(self.folder / "ids.arrow", dtype=np.int32, mode="r"))
        table = pa.ipc.open_stream(pa.py_buffer(self._file)).read_all()
        self.labels = table[LABEL].to_numpy() if LABEL in table.column_names else None
        columns = [table[name].chunks for name in table.column_names if name != LABEL]
        self.columns = len(columns)
        # The first row of every chunk, and the number of rows.
        self._first = np.cumsum([0, *map(len, columns[0])])
        # Where the offsets and the ids of every chunk begin in the file, (columns, 2, chunks).
        places = [[self._places(chunk) for chunk in chunks] for chunks in columns]
        self._begin = np.array(places).transpose(0, 2, 1)

    def _places(self, chunk: pa.ListArray) -> list[int]:
        buffers = (chunk.buffers()[1], chunk.values.buffers()[1])
        return [
            (buffer.address - self._file.ctypes.data) // 4 if buffer else 0 for buffer in buffers
        ]

    def __reduce__(self):
        return TokenisedText, (self.folder,)  # a worker process maps the file itself

    def __len__(self) -> int:
        return int(self._first[-1])

    def sentences(self, rows: Rows, column: int, longest: int) -> tuple[np.ndarray, np.ndarray]:
        """The first `longest` ids of B sentences, (tokens,), and the lengths of those, (B,)."""
        starts, lengths = self._extents(rows, column)
        lengths = np.minimum(lengths, longest)
        # From an index in the result to that in the file.
        shift = starts - (np.cumsum(lengths) - lengths)
        return self._file[np.repeat(shift, lengths) + np.arange(lengths.sum())], lengths

    def lengths(self, rows: Rows, column: int) -> np.ndarray:
        """The lengths of B sentences, (B,)."""
        return self._extents(rows, column)[1]

    def frequencies(self, longest: int, size: int) -> np.ndarray:
        """How often each token occurs in the first `longest` ids of the sentences, (size,).

        Of a long text only the first `EXAMINED` rows are counted.
        """
        counts = np.zeros(size, dtype=np.int64)
        for start in range(0, min(len(self), EXAMINED), _READ_AT_ONCE):
            rows = np.arange(start, min(len(self), start + _READ_AT_ONCE))
            for column in range(self.columns):
                counts += np.bincount(self.sentences(rows, column, longest)[0], minlength=size)
        return counts

    def _extents(self, rows: Rows, column: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the first id of B sentences is in the file, and their lengths, (B,) each."""
        chunk = np.searchsorted(self._first, rows, side="right") - 1
        offsets, values = self._begin[column][:, chunk]
        offset = offsets + rows - self._first[chunk]
        starts = self._file[offset].astype(np.int64)
        return values + starts, self._file[offset + 1] - starts


def load_tokenised(
    source: Source,
    tokenizer,
    cache_dir: str | Path,
    sample: Sample | None = None,
    block: int | None = None,
) -> TokenisedText:
    """Return the token ids of a text, from the cache or computed now.

    With `sample` only its rows are tokenised, in the order of the draw. With `block` the text is
    cut into blocks of at most that many ids (`_blocks`), for masked language modelling.

    Raises:
        BadInput: as `data.text.read_text`; a sentence without tokens; a sample larger than the
            text.
    """
    if not tokenizer.is_fast:
        raise BadInput(
            "the model's tokenizer has no tokenizer.json that the library could make or read: not "
            "supported"
        )
    # The tokenizer's last call may have set truncation and padding; neither affects the ids.
    rules = json.loads(tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}
    key = source.key(rules, sample and astuple(sample), block)

    def make(folder: Path) -> None:
        text = read_text(source, cache_dir)
        drawn = None if sample is None else sample.rows(len(text))
        rows = text.rows if drawn is None else text.rows.select(drawn)
        spaced = block is not None and decoder_of(tokenizer) == "ByteLevel"
        encoded = _encoded(source, tokenizer, rows, drawn, spaced)
        if block is None:
            names, batches = rows.column_names, encoded
        else:
            names, batches = ["0"], _blocks(encoded, word_starts(tokenizer), block)
        ids = pa.list_(pa.int32())
        schema = pa.schema({name: pa.int64() if name == LABEL else ids for name in names})
        write_rows(folder / "ids.arrow", schema, batches)
        facts = dict(text.facts)
        if spaced:
            facts["spaced"] = True  # a run that began without it is another one
        write_json(folder / "facts.json", facts)

    return TokenisedText(cached(Path(cache_dir) / key, make))


def _encoded(
    source: Source, tokenizer, rows: "Dataset", drawn: np.ndarray | None, spaced: bool
) -> Iterator[dict[str, list]]:
    """Yield batches of rows as ids, with their labels; `drawn` are their numbers in the text.

    `spaced` puts a space before every row: in running text byte-level BPE knows words by it.
    """
    backend, done = tokenizer.backend_tokenizer, 0
    space = " " if spaced else ""
    backend.no_truncation()  # the tokenizer's last call may have set both
    backend.no_padding()
    names = [name for name in rows.column_names if name != LABEL]
    with progress(len(rows), "tokenise", "row") as bar:
        for batch in rows.iter(ROWS_AT_ONCE):
            columns = {}
            for name in names:
                cells = [space + cell for cell in batch[name]]
                encodings = backend.encode_batch_fast(cells, add_special_tokens=False)
                columns[name] = [encoding.ids for encoding in encodings]
                for row, (cell, ids) in enumerate(zip(batch[name], columns[name], strict=True)):
                    if cell and not ids:
                        number = 1 + (done + row if drawn is None else drawn[done + row])
                        where = f"{source.described}: row {number:,} (not counting empty rows)"
                        said = f"the tokenizer finds no token in {cell[:40]!a}; remove the row"
                        raise BadInput(f"{where}: {said}")
            if LABEL in batch:
                columns[LABEL] = batch[LABEL]
            yield columns
            done += len(batch[names[0]])
            bar.update(len(batch[names[0]]))


def _blocks(
    batches: Iterable[dict[str, list]], starts_word: np.ndarray, length: int
) -> Iterator[dict[str, list]]:
    """Cut running text into consecutive blocks of at most `length` ids.

    A block ends at the last word that fits, so no word is split (unless it is longer than a block).
    Sentences follow each other without a separator. A shorter last block is kept.
    """
    if length < 1:
        raise BadInput("--max_length: the special tokens leave no room for text")
    # The ids after the last block, and which of them begin a word.
    left, left_begins = np.array([], dtype=np.int32), np.array([], dtype=bool)
    for batch in batches:
        sentences = [ids for row in zip(*batch.values(), strict=True) for ids in row]
        lengths = np.array([len(ids) for ids in sentences])
        new = np.fromiter(chain.from_iterable(sentences), dtype=np.int32, count=lengths.sum())
        begins = starts_word[new]
        # A sentence always begins with a word.
        begins[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
        flat, begins = np.concatenate([left, new]), np.concatenate([left_begins, begins])
        cuts = cut(np.flatnonzero(begins), len(flat), length)
        left, left_begins = flat[cuts[-1] :], begins[cuts[-1] :]
        yield {"0": [flat[a:b] for a, b in pairwise(cuts)]}
    if len(left):
        yield {"0": [left]}


def cut(words: np.ndarray, total: int, length: int) -> list[int]:
    """Return 0 and the ends of full blocks of at most `length` of `total` ids.

    `words` is where words begin, ascending.
    """
    cuts = [0]
    while total - cuts[-1] > length:
        last = np.searchsorted(words, cuts[-1] + length, side="right") - 1
        fits = last >= 0 and words[last] > cuts[-1]
        cuts.append(int(words[last]) if fits else cuts[-1] + length)
    return cuts
