"""Unit vectors and the cosines of pairs, in float64."""

import numpy as np


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length one, (N, D) -> (N, D); a zero row stays zero, so its cosines are 0."""
    vectors = vectors.astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


def pair_cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The cosine of each row on the left with that on the right, (N, D) and (N, D) -> (N,).

    0 if a vector is zero. Divided once, as in SentEval: cosines of pairs of equal sentences differ
    by rounding alone, and so decide the second decimal of a rank correlation.
    """
    left, right = left.astype(np.float64), right.astype(np.float64)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.divide((left * right).sum(1), norms, out=np.zeros(len(left)), where=norms > 0)
