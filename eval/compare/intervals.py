"""95 % intervals of a difference A - B: over test examples (paired bootstrap) or over runs (Welch, prediction)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from scipy.stats import rankdata, t

from eval.compare.scores import Score

Items = Mapping[str, np.ndarray]  # `similarity` and `gold`, or `value`, each (n,): see eval/task.py
CELLS = 500_000  # resampled examples held at once, about 4 MB an array


def figure(items: Items, index: np.ndarray) -> np.ndarray:
    """The metric x 100 of each line of examples, (R, n) -> (R,): Spearman of pairs, the mean of single values."""
    if "value" in items:
        return 100 * items["value"][index].mean(axis=1)
    return 100 * _correlations(rankdata(items["similarity"][index], axis=1), rankdata(items["gold"][index], axis=1))


def resampled_differences(a: Items, b: Items, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """The paired bootstrap (Efron and Tibshirani 1993): A's metric less B's on the same drawn examples, (resamples,).

    Args:
        a: figures of n examples.
        b: figures of the same examples in the same order.
        resamples: how many times n examples are drawn with replacement, as `rng.integers(n, size=(resamples, n))`.
        rng: where the draws come from.
    """
    return np.concatenate([figure(a, index) - figure(b, index) for index in _draws(a, resamples, rng)])


def resampled_figures(items: Items, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """The bootstrap of one side's metric, (resamples,), with the draws of `resampled_differences`.

    From the same state of `rng` and the same examples, one side's figures less the other's are the paired bootstrap.
    """
    return np.concatenate([figure(items, index) for index in _draws(items, resamples, rng)])


def percentile(figures: np.ndarray) -> tuple[float, float]:
    """The middle 95 % of resampled figures or differences."""
    low, high = np.percentile(figures, [2.5, 97.5])
    return float(low), float(high)


def welch(a: Score, b: Score) -> tuple[float, float]:
    """Welch's t interval of the difference of two means over independent runs, standard deviations not assumed equal.

    Both scores need a standard deviation and two runs or more.
    """
    difference = a.mean - b.mean
    parts = [(score.std**2 / score.runs, score.runs - 1) for score in (a, b)]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return difference, difference
    freedom = variance**2 / sum(part**2 / free for part, free in parts)
    half = float(t.ppf(0.975, freedom)) * math.sqrt(variance)
    return difference - half, difference + half


def prediction(difference: float, known: Score, runs: int) -> tuple[float, float]:
    """The difference, give or take what `runs` more runs of the method behind `known` would show.

    It contains 0 exactly where the mean of the runs lies in the prediction interval of `known`,
    mean ± t(0.975, n - 1) s sqrt(1 / n + 1 / runs). Runs are taken to spread alike on both sides.
    """
    half = float(t.ppf(0.975, known.runs - 1)) * known.std * math.sqrt(1 / known.runs + 1 / runs)
    return difference - half, difference + half


def _draws(items: Items, resamples: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    n = len(next(iter(items.values())))
    size = max(1, CELLS // n)
    for start in range(0, resamples, size):
        yield rng.integers(n, size=(min(size, resamples - start), n))


def _correlations(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Pearson's correlation line by line, (R, n) and (R, n) -> (R,); 0 where a line is constant."""
    left, right = (x - x.mean(axis=1, keepdims=True) for x in (left, right))
    product = np.einsum("ij,ij->i", left, right)
    norms = np.sqrt(np.einsum("ij,ij->i", left, left) * np.einsum("ij,ij->i", right, right))
    return np.divide(product, norms, out=np.zeros(len(product)), where=norms > 0)
