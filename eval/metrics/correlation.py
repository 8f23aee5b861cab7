"""Correlation x 100, for a score and for every resample of an interval alike."""

import numpy as np


def spearman(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Spearman's correlation along the last axis, (..., n) and (..., n) -> (...), from -100 to 100.

    Ties share their mean rank. 0 where a side is constant, as for a collapsed model.
    """
    from scipy.stats import rankdata  # here: most commands need no ranks, and scipy takes a while

    return pearson(rankdata(left, axis=-1), rankdata(right, axis=-1))


def pearson(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Pearson's correlation along the last axis; shapes and constant sides as in `spearman`."""
    varied = (np.ptp(left, axis=-1) > 0) & (np.ptp(right, axis=-1) > 0)
    left = left - np.mean(left, axis=-1, keepdims=True)
    right = right - np.mean(right, axis=-1, keepdims=True)
    product = np.einsum("...i,...i->...", left, right)
    squares = np.einsum("...i,...i->...", left, left) * np.einsum("...i,...i->...", right, right)
    return 100 * np.divide(product, np.sqrt(squares), out=np.zeros_like(product), where=varied)
