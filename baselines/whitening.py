"""BERT-whitening (Su et al. 2021, arXiv 2103.15316): a linear map to identity covariance.

With the eigenvectors u and eigenvalues s of the covariance, a vector x becomes (x - mean) u diag(1
/ sqrt(s)); the first K columns, those of the largest eigenvalues, are the K-dimensional version.
Our extension: a power p from 0 to 1 divides by s^(p / 2) instead, so that large directions shrink
without becoming equal; 1 is the paper's, 0 centres only.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from common.errors import BadInput
from models.heads import Dense

BLOCK = 8192  # vectors held in float64 at once


class Moments(NamedTuple):
    """Mean and covariance of vectors, in float64."""

    texts: int
    mean: np.ndarray  # (D,)
    covariance: np.ndarray  # (D, D), divided by N as in the paper (official code: N - 1)
    length: float  # root of the mean squared length of the vectors


def moments(vectors: np.ndarray) -> Moments:
    """Mean and covariance of the rows of (N, D), any float type; sums in float64."""
    count, width = vectors.shape
    mean = vectors.mean(0, dtype=np.float64)
    covariance = np.zeros((width, width))
    for start in range(0, count, BLOCK):
        centred = vectors[start : start + BLOCK] - mean
        covariance += centred.T @ centred
    covariance /= count
    return Moments(count, mean, covariance, float(np.sqrt(np.trace(covariance) + mean @ mean)))


def rank(eigenvalues: np.ndarray, length: float) -> int:
    """The number of directions that vary more than float32 vectors of this length are rounded."""
    deviations = np.sqrt(np.maximum(eigenvalues, 0))
    return int((deviations > 10 * np.finfo(np.float32).eps * length).sum())


def kernel(statistics: Moments, dimensions: int | None = None, power: float = 1.0) -> np.ndarray:
    """The whitening matrix (D, K) in float64, columns by descending eigenvalue.

    K is `dimensions`, by default the rank, which is D - 1 after a layer norm (pooling avg and
    cls_before_pooler).

    Raises:
        BadInput: `dimensions` is outside 1..rank, which is less than the number of vectors; all
            vectors are equal.
    """
    u, eigenvalues, _ = np.linalg.svd(statistics.covariance, hermitian=True)
    available = rank(eigenvalues, statistics.length)
    wanted = available if dimensions is None else dimensions
    if not 1 <= wanted <= available:
        raise BadInput(
            f"--dimensions {wanted}: the vectors of the {statistics.texts} texts vary in "
            f"{available} directions"
        )
    return u[:, :wanted] / eigenvalues[:wanted] ** (power / 2)


def linear_map(matrix: np.ndarray, mean: np.ndarray) -> Dense:
    """The map of x to (x - mean) matrix, (N, D) -> (N, K), in float32."""
    linear = nn.Linear(*matrix.shape)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(matrix.T))
        linear.bias.copy_(torch.from_numpy(-mean @ matrix))
    return Dense(linear, "Identity")
