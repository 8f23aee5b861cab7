"""Running text as blocks of equal length, for masked language modelling."""

from __future__ import annotations

import numpy as np

from data.corpus import Corpus
from errors import BadInput


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
    words = starts_word[np.asarray(corpus.ids)]
    words[corpus.offsets[:, 0]] = True  # a line begins a word, whatever its first token looks like
    boundaries = np.flatnonzero(words)
    total, position, cuts = len(corpus.ids), 0, [0]
    while total - position > length:
        candidate = boundaries[np.searchsorted(boundaries, position + length, side="right") - 1]
        position = int(candidate) if candidate > position else position + length
        cuts.append(position)
    cuts.append(total)
    return Corpus(corpus.folder, np.stack([cuts[:-1], cuts[1:]], axis=1))
