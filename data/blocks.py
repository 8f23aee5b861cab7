"""Running text as blocks of equal length, for masked language modelling."""

from __future__ import annotations

from array import array
from bisect import bisect_left

import numpy as np

from common.errors import BadInput
from data.corpus import Corpus

_TOKENS_AT_ONCE = 2**22  # whose words are known at a time


def packed(corpus: Corpus, length: int, starts_word: np.ndarray) -> Corpus:
    """The same tokens with other offsets: consecutive blocks of at most `length` ids.

    A block ends at the last word that fits, so that no word is cut in two (unless it is longer than a block);
    lines follow each other without a separator, as paragraphs do. A last, shorter block is kept.

    Args:
        corpus: one column; its rows are consecutive in `ids`.
        length: ids in a block, without special tokens.
        starts_word: (vocabulary,) whether a token begins a word (`data.masking.word_starts`).
    """
    if length < 1:
        raise BadInput("--max_length: the special tokens leave no room for text")
    total, cuts = len(corpus.ids), array("q", [0])
    while total - cuts[-1] > length:
        end = min(cuts[-1] + max(_TOKENS_AT_ONCE, length + 1), total)
        _cut(cuts, _word_starts(corpus, cuts[-1], end, starts_word), end, length)
    cuts.append(total)
    made = np.frombuffer(cuts, dtype=np.int64)
    return Corpus(corpus.folder, np.stack([made[:-1], made[1:]], axis=1))


def _cut(cuts: array, boundaries: np.ndarray, end: int, length: int) -> None:
    """Add the ends of all blocks whose whole reach lies before `end`."""
    position = cuts[-1]
    while end - position > length:
        candidate = boundaries[np.searchsorted(boundaries, position + length, side="right") - 1]
        position = int(candidate) if candidate > position else position + length
        cuts.append(position)


def _word_starts(corpus: Corpus, first: int, end: int, starts_word: np.ndarray) -> np.ndarray:
    """The places from `first` to `end - 1` at which a word begins, and `first` itself."""
    words = starts_word[corpus.ids[first:end]]
    rows = corpus.offsets[:, 0]  # searched by bisection, because NumPy's search would copy the whole column
    lines = np.array(rows[bisect_left(rows, first) : bisect_left(rows, end)])
    words[lines - first] = True  # a line begins a word, whatever its first token looks like
    words[0] = True
    return first + np.flatnonzero(words)
