"""Dense and lexical scores together: 0.7 times the standardised cosines plus 0.3 times the standardised BM25 scores.

Both lists of scores of a query are standardised over the whole corpus, because their scales differ from query to query.
Such a convex combination finds more than fused ranks and needs no examples (arXiv 2210.11934).
"""

import numpy as np

WEIGHT = 0.7  # of the cosines; from 0.6 to 0.8 it hardly matters, see results/search.md


def standardised(scores: np.ndarray) -> np.ndarray:
    """(N,) -> (N,) float64 with mean 0 and standard deviation 1; zeros if all scores are equal."""
    scores = scores.astype(np.float64)
    if not len(scores) or scores.min() == scores.max():
        return np.zeros(len(scores))
    return (scores - scores.mean()) / scores.std()


def fused(cosines: np.ndarray, lexical: np.ndarray, weight: float = WEIGHT) -> np.ndarray:
    """The scores of every document for one query, (N,) and (N,) -> (N,) float64.

    Where BM25 knows no word of the query all its scores are 0, and the order is that of the cosines.
    """
    return weight * standardised(cosines) + (1 - weight) * standardised(lexical)


def best(scores: np.ndarray, k: int) -> np.ndarray:
    """The indices of the k highest scores, (min(k, N),), best first, ties by index."""
    k = min(k, len(scores))
    if not k:
        return np.empty(0, dtype=np.int64)
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    candidates = np.flatnonzero(scores >= least)
    return candidates[np.argsort(-scores[candidates], kind="stable")[:k]]
