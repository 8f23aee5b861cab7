"""95 % intervals of a difference A - B: over test examples (paired bootstrap) or over runs (Welch, prediction)."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping

import numpy as np
from scipy.stats import rankdata, t

from common.errors import BadInput
from eval.compare.sides import Score, Side
from eval.scores import AVERAGE, Key, read_items

Items = Mapping[str, np.ndarray]  # `similarity` and `gold`, or `value`, each (n,): see `eval.scores.Result`
DRAWN_AT_ONCE = 500_000  # resampled examples held at once, about 4 MB an array
NO_EXAMPLES = "cannot say: no examples of"
TOLERANCE = 0.01  # between a row and its examples: accuracies of folds are rounded separately


def bootstrap(a: Side, b: Side, keys: list[Key], resamples: int, seed: int) -> dict[Key, np.ndarray | str]:
    """A - B in every resample of two sides of one file each, (resamples,), or the reason why there is none.

    Raises:
        BadInput: the examples of the two files are not the same, or an items file is damaged.
    """
    items = read_items(a.file), read_items(b.file)
    found: dict[Key, np.ndarray | str] = {}
    for key in sorted(keys, key=lambda key: key.task == AVERAGE):
        if key.task != AVERAGE:
            _refuse_other_examples(a, b, key, items)
            sides = zip("AB", (a, b), items, strict=True)
            one, other = (resampled(side, own, key, resamples, seed, name) for name, side, own in sides)
            reasons = [side for side in (one, other) if isinstance(side, str)]
            found[key] = reasons[0] if reasons else one - other
        elif a.averaged[key[1:]] == b.averaged[key[1:]]:
            found[key] = mean_of_tasks(found, a, key)
    return found


def _refuse_other_examples(a: Side, b: Side, key: Key, items: tuple[dict, dict]) -> None:
    one, other = (own.get(key[:3]) if key in side.headline else None for side, own in zip((a, b), items, strict=True))
    alike = same_examples(one, other) if one and other else True
    if not alike or a.scores[key].examples != b.scores[key].examples:
        raise BadInput(f"{key}: {a.file} and {b.file} were scored on different examples; score both on the same data")


def resampled(side: Side, items: dict, key: Key, resamples: int, seed: int, name: str = "") -> np.ndarray | str:
    """A side's figure of one task in every resample, (resamples,), or why there is none.

    The draws depend on `seed` and `key` alone; `items` are those of the side's file, `name` is for the reason.
    """
    own = items.get(key[:3])
    if key not in side.headline or own is None:
        return f"{NO_EXAMPLES} {name}"
    again = float(figure(own, np.arange(len(next(iter(own.values()))))[None])[0])
    if abs(again - side.scores[key].mean) > TOLERANCE:  # the examples of another scoring
        return f"cannot say: the examples of {name} give {again:.2f}, its row {side.scores[key].mean:.2f}"
    return resampled_figures(own, resamples, draws_of(key, seed))


def mean_of_tasks(found: Mapping[Key, np.ndarray | str], side: Side, key: Key) -> np.ndarray | str:
    """The average of a resample, over one independent draw of every task, or the first task's reason."""
    parts = [found[Key(task, *key[1:])] for task in sorted(side.averaged[key[1:]])]
    reasons = [part for part in parts if isinstance(part, str)]
    return reasons[0] if reasons else np.mean(parts, axis=0)


def draws_of(key: Key, seed: int) -> np.random.Generator:
    """The generator of one task's draws."""
    return np.random.default_rng([seed, zlib.crc32("|".join(key).encode())])


def same_examples(one: Items, other: Items) -> bool:
    """Whether both sides have the same gold scores, or else the same number of examples."""
    if one.keys() != other.keys():
        return False
    return np.array_equal(one["gold"], other["gold"]) if "gold" in one else len(one["value"]) == len(other["value"])


def figure(items: Items, index: np.ndarray) -> np.ndarray:
    """The metric x 100 of each row of example indices, (R, n) -> (R,): Spearman of pairs, the mean of values."""
    if "value" in items:
        return 100 * items["value"][index].mean(axis=1)
    return 100 * _correlations(rankdata(items["similarity"][index], axis=1), rankdata(items["gold"][index], axis=1))


def resampled_figures(items: Items, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """The metric of one side in every resample of its n examples, (resamples,).

    Two sides with the same examples and generators in the same state give the paired bootstrap (Efron and Tibshirani
    1993): their figures in a resample are of the same drawn examples, `rng.integers(n, size=(resamples, n))`.
    """
    n = len(next(iter(items.values())))
    size = max(1, DRAWN_AT_ONCE // n)
    sizes = (min(size, resamples - start) for start in range(0, resamples, size))
    return np.concatenate([figure(items, rng.integers(n, size=(part, n))) for part in sizes])


def percentile(figures: np.ndarray) -> tuple[float, float]:
    """The middle 95 % of resampled figures or differences."""
    low, high = np.percentile(figures, [2.5, 97.5])
    return float(low), float(high)


def welch(a: Score, b: Score) -> tuple[float, float]:
    """Welch's t interval of the difference of two means over independent runs; both need a standard deviation."""
    difference = a.mean - b.mean
    parts = [(score.std**2 / score.runs, score.runs - 1) for score in (a, b)]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return difference, difference
    freedom = variance**2 / sum(part**2 / free for part, free in parts)
    half = float(t.ppf(0.975, freedom)) * math.sqrt(variance)
    return difference - half, difference + half


def prediction(difference: float, known: Score, runs: int) -> tuple[float, float]:
    """The prediction interval of a difference to `known`, whose spread over runs is known.

    It contains 0 exactly where the mean of the runs lies in the prediction interval of `known`,
    mean ± t(0.975, n - 1) s sqrt(1 / n + 1 / runs). Runs are taken to spread alike on both sides.
    """
    half = float(t.ppf(0.975, known.runs - 1)) * known.std * math.sqrt(1 / known.runs + 1 / runs)
    return difference - half, difference + half


def _correlations(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Pearson's correlation of each row, (R, n) and (R, n) -> (R,); 0 where a row is constant."""
    left, right = (x - x.mean(axis=1, keepdims=True) for x in (left, right))
    product = np.einsum("ij,ij->i", left, right)
    norms = np.sqrt(np.einsum("ij,ij->i", left, left) * np.einsum("ij,ij->i", right, right))
    return np.divide(product, norms, out=np.zeros(len(product)), where=norms > 0)
