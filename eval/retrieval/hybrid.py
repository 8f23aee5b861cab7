"""Dense and lexical scores, alone and together: half standardised cosines, half scaled BM25 scores.

Their scales differ from query to query, so the cosines of a query are standardised over the corpus,
and its BM25 scores are divided by their mean plus their standard deviation over the documents that
contain a word of the query. (Standardised over the corpus, where most scores are 0, one rare word
can outweigh every cosine: on freely worded questions it had 29.8 instead of 32.7 at weight 0.7, see
results/search.md.) A convex combination finds more than fused ranks and needs no examples
(arXiv 2210.11934).
"""

import numpy as np
import torch
from torch import Tensor

WEIGHT = 0.5  # of the cosines; from 0.4 to 0.6 it hardly matters, see results/search.md
_DOCUMENTS = 8192  # at a time: the corpus may be larger than the memory


@torch.no_grad()
def cosines(
    queries: np.ndarray, documents: np.ndarray, device: str | torch.device = "cpu"
) -> np.ndarray:
    """The cosine of every query with every document, (Q, D) and (N, D) -> (Q, N) float32.

    A zero vector has cosine 0 with everything. The documents may be a memory map; products are
    computed on the device.
    """
    scores, left = torch.empty(len(queries), len(documents)), _unit(queries, device)
    for start in range(0, len(documents), _DOCUMENTS):
        block = slice(start, start + _DOCUMENTS)
        scores[:, block] = left @ _unit(documents[block], device).T
    return scores.numpy()


def _unit(vectors: np.ndarray, device: str | torch.device) -> Tensor:
    """Rows of length 1, (N, D) float32; a copy, because a memory map is read-only."""
    rows = torch.from_numpy(np.array(vectors, dtype=np.float32))
    return torch.nn.functional.normalize(rows.to(device), dim=1)


def standardised(cosines: np.ndarray) -> np.ndarray:
    """(N,) -> (N,) float64 with mean 0 and standard deviation 1; zeros if all are equal."""
    cosines = cosines.astype(np.float64)
    if not len(cosines) or cosines.min() == cosines.max():
        return np.zeros(len(cosines))
    return (cosines - cosines.mean()) / cosines.std()


def scaled(lexical: np.ndarray) -> np.ndarray:
    """BM25 scores (N,) -> float64, divided by mean plus standard deviation of those above 0."""
    matching = lexical[lexical > 0].astype(np.float64)
    return lexical / (matching.mean() + matching.std()) if len(matching) else np.zeros(len(lexical))


def fused(cosines: np.ndarray, lexical: np.ndarray, weight: float = WEIGHT) -> np.ndarray:
    """The scores of every document for one query, (N,) and (N,) -> (N,) float64.

    Where BM25 knows no word of the query all its scores are 0, and the cosines alone count, also
    at weight 0.
    """
    if not lexical.any():
        return standardised(cosines)
    return weight * standardised(cosines) + (1 - weight) * scaled(lexical)


def best(scores: np.ndarray, k: int) -> np.ndarray:
    """The indices of the k highest scores, (min(k, N),), best first, ties by index."""
    k = min(k, len(scores))
    if not k:
        return np.empty(0, dtype=np.int64)
    least = np.partition(scores, len(scores) - k)[len(scores) - k]
    candidates = np.flatnonzero(scores >= least)
    return candidates[np.argsort(-scores[candidates], kind="stable")[:k]]
