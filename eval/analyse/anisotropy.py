"""Anisotropy: do the vectors point everywhere, or into one narrow cone along a few directions?

Sources: the mean cosine of random sentences is Ethayarajh's measure (arXiv 1909.00512); the spectrum is what SimCSE
(arXiv 2104.08821, section 5) argues the contrastive loss flattens; the effective rank is Roy and Vetterli's (2007).
All on unit vectors, because the cosine sees no other.
"""

from __future__ import annotations

import numpy as np

from eval.analyse.analysis import Analysis, Material, Subject, unit


def mean_cosine(vectors: np.ndarray) -> float:
    """Mean cosine of all pairs of different rows, (N, D) -> -1 to 1, exactly, from the sum of the unit vectors.

    |sum_i u_i|^2 holds every pair twice and each row with itself once. A drawn sample of pairs would only be noisier.
    """
    rows = unit(vectors)
    count = len(rows)
    return float((np.square(rows.sum(0)).sum() - np.square(rows).sum()) / (count * (count - 1)))


def spectrum(vectors: np.ndarray) -> np.ndarray:
    """Singular values of the centred unit vectors over the largest, falling, (N, D) -> (min(N - 1, D),).

    All zero where the vectors are equal to float32's precision: what is left there is rounding.
    """
    rows = unit(vectors)
    values = np.linalg.svd(rows - rows.mean(0), compute_uv=False)[: len(rows) - 1]  # centring costs one dimension
    largest = values[0]
    if largest <= np.finfo(np.float32).eps * np.sqrt(len(rows)):
        return np.zeros_like(values)
    return values / largest


def effective_rank(values: np.ndarray) -> float:
    """Exponential of the entropy of singular values that sum to one, (R,) -> 1 to R; 0 where all are zero."""
    positive = values[values > 0]
    if len(positive) == 0:
        return 0.0
    shares = positive / positive.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def measure(subject: Subject, material: Material) -> dict:
    """Mean cosine, effective rank and the spectrum."""
    vectors = subject.encode(material.sentences)
    values = spectrum(vectors)
    return {
        "mean_cosine": mean_cosine(vectors),
        "effective_rank": effective_rank(values),
        "dimensions": vectors.shape[1],
        "sentences": len(vectors),
        "spectrum": values.tolist(),
    }


ANALYSIS = Analysis(
    about="mean cosine of random sentences, singular values and effective rank of the centred vectors",
    measure=measure,
    headlines={"mean_cosine": ("mean cosine of random pairs", ".3f"), "effective_rank": ("effective rank", ".1f")},
)
