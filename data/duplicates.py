"""Equal sentences in one batch: each is a negative of the other, and should not be."""

from __future__ import annotations

from itertools import islice

import numpy as np

from data import draws
from data.corpus import Corpus
from data.sampler import KeyedSampler

EXAMINED = 1_000_000  # examples; a longer text takes no longer to start
_ROWS_AT_ONCE = 50_000


def false_negatives(corpus: Corpus, sampler: KeyedSampler, longest: int) -> tuple[int, int]:
    """How many of the first epoch's examples share their batch with an equal one, and how many were looked at.

    Args:
        corpus: rows of sentences; the first sentence of a row counts.
        sampler: of the batches; a smaller last batch is not trained on.
        longest: tokens of a sentence that are read.
    """
    size = min(sampler.batch_size, sampler.count)
    count = min(sampler.count, EXAMINED) // size * size
    order = np.fromiter(islice(sampler.order(0), count), dtype=np.int64, count=count)
    rows = np.sort(_fingerprints(corpus, order, longest).reshape(-1, size), axis=1)
    same = rows[:, 1:] == rows[:, :-1]
    edge = np.zeros((len(rows), 1), dtype=bool)
    return int((np.hstack([edge, same]) | np.hstack([same, edge])).sum()), count


def _fingerprints(corpus: Corpus, chosen: np.ndarray, longest: int) -> np.ndarray:
    """64 bits of each row's first sentence, (rows,): a sum over its tokens of a hash of (token, position)."""
    parts = []
    for start in range(0, len(chosen), _ROWS_AT_ONCE):
        ids, lengths = corpus.sentences(chosen[start : start + _ROWS_AT_ONCE], 0, longest)
        first = np.cumsum(lengths) - lengths
        positions = np.arange(len(ids)) - np.repeat(first, lengths)
        parts.append(np.add.reduceat(draws.keys(0, positions, ids, "equal"), first))
    return np.concatenate(parts)
