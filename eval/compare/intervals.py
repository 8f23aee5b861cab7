"""Compare two sides figure by figure: A - B, its 95 % interval and a verdict.

The interval is over test examples (paired bootstrap) or over runs (Welch, prediction).
"""

import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from eval.compare.sides import Score, Side, published
from eval.metrics.correlation import spearman
from eval.scores import AVERAGE, Key, read_items

# `similarity` and `gold`, or `value`, each (n,): see `eval.scores.Result`.
Items = Mapping[str, np.ndarray]
RESAMPLES, SEED = 1000, 0  # of the bootstrap
DRAWN_AT_ONCE = 500_000  # resampled examples held at once, about 4 MB per array
NO_EXAMPLES = "cannot say: no examples of"
TOLERANCE = 0.01  # between a row and its examples: fold accuracies are rounded separately
ABOVE, BELOW, INSIDE = "A is above B", "A is below B", "inside (no difference shown)"
COLUMNS = ["task", "A", "B", "A - B", "95 % interval", "verdict"]


@dataclass(frozen=True)
class Interval:
    """A 95 % interval of A - B, and its method: `bootstrap`, `welch` or `prediction`."""

    low: float
    high: float
    method: str


@dataclass(frozen=True)
class Line:
    """One figure of both sides.

    Attributes:
        key: which figure.
        a, b: the scores; None if a side lacks the figure.
        outcome: the interval, or why there is none.
        against: the published record used instead of a published single run, because it shows the
            method's spread.
    """

    key: Key
    a: Score | None
    b: Score | None
    outcome: Interval | str
    against: str | None = None

    @property
    def difference(self) -> float | None:
        return self.a.mean - self.b.mean if self.a and self.b else None

    @property
    def verdict(self) -> str:
        """The conclusion, or why none is possible."""
        if isinstance(self.outcome, str):
            return self.outcome
        if self.outcome.low > 0:
            return ABOVE
        return BELOW if self.outcome.high < 0 else INSIDE

    def cells(self) -> list[str]:
        """A table line with the columns `COLUMNS`; both sides must have the figure."""
        task = f"{self.key} against {self.against}" if self.against else str(self.key)
        interval = "-"
        if isinstance(self.outcome, Interval):
            interval = f"{self.outcome.low:+.2f} to {self.outcome.high:+.2f}"
        return [task, str(self.a), str(self.b), f"{self.difference:+.2f}", interval, self.verdict]

    def row(self) -> dict:
        """The line as JSON values; it begins with other bytes than a row of scores."""
        row: dict[str, Any] = {"verdict": self.verdict, **self.key._asdict()}
        for name, score in (("a", self.a), ("b", self.b)):
            row[name] = score.mean if score else None
            if score:
                row |= {f"{name}_std": score.std, f"{name}_runs": score.runs}
        row["difference"] = self.difference
        if isinstance(self.outcome, Interval):
            row |= asdict(self.outcome)
        else:
            row |= dict.fromkeys(("low", "high", "method"))
        return row | {"against": self.against}


def compare(a: Side, b: Side) -> list[Line]:
    """Every figure of either side, those missing in one side last.

    One file each: paired bootstrap over the test examples. Several files each: Welch's interval
    over runs. One side with a known spread (published, or our files against one of ours):
    prediction interval. Otherwise no verdict.

    A published single run may point to a record with its method's spread; the other side is then
    also compared with that record, in further lines.
    """
    keys = list(dict.fromkeys([*a.headline, *b.headline]))
    shared = [key for key in keys if key in a.scores and key in b.scores]
    drawn = bootstrap(a, b, shared) if a.file and b.file else {}
    lines = _lines(a, b, shared, drawn)
    if b.spread:
        lines += _lines(a, published(b.spread), shared, against=b.spread)
    if a.spread:
        lines += _lines(published(a.spread), b, shared, against=a.spread)
    for key in keys:
        if key not in shared:
            reason = "missing in A" if key in b.scores else "missing in B"
            lines.append(Line(key, a.scores.get(key), b.scores.get(key), reason))
    return lines


def _lines(
    a: Side,
    b: Side,
    keys: Iterable[Key],
    drawn: Mapping[Key, np.ndarray | str] = {},
    against: str | None = None,
) -> list[Line]:
    """The figures that both sides have."""
    lines = []
    for key in keys:
        if key in a.scores and key in b.scores:
            outcome = _outcome(a, b, key, drawn.get(key))
            lines.append(Line(key, a.scores[key], b.scores[key], outcome, against))
    return lines


def _outcome(
    a: Side, b: Side, key: Key, resampled: np.ndarray | str | None = None
) -> Interval | str:
    left, right = a.scores[key], b.scores[key]
    # Not known of an average that a file has alone.
    tasks = [side.averaged.get(key[1:]) for side in (a, b)]
    if key.task == AVERAGE and all(tasks) and tasks[0] != tasks[1]:
        return "cannot say: averages over different tasks"
    if left.examples and right.examples and left.examples != right.examples:
        return f"cannot say: different examples, {left.examples} against {right.examples}"
    if left.data and right.data and left.data != right.data:
        return "cannot say: different examples"
    if left.protocol and right.protocol and left.protocol != right.protocol:
        return f"cannot say: protocol {left.protocol} against {right.protocol}"
    if isinstance(resampled, str):
        return resampled
    if resampled is not None:
        return Interval(*percentile(resampled), "bootstrap")
    if left.std is not None and right.std is not None and a.published == b.published:
        return Interval(*welch(left, right), "welch")
    # A published figure is judged by its own method's spread, never by that of our runs.
    difference = left.mean - right.mean
    if right.std is not None and b.published >= a.published:
        return Interval(*prediction(difference, right, left.runs), "prediction")
    if left.std is not None and a.published >= b.published:
        return Interval(*prediction(difference, left, right.runs), "prediction")
    if 1 in (left.runs, right.runs):
        return "cannot say from one run"
    return "cannot say: no spread over the runs is known"


def bootstrap(a: Side, b: Side, keys: list[Key]) -> dict[Key, np.ndarray | str]:
    """A - B in every resample, (RESAMPLES,), or why there is none; each side must be one file.

    Raises:
        BadInput: an items file is damaged.
    """
    assert a.file and b.file
    items_of_a, items_of_b = read_items(a.file), read_items(b.file)
    differences: dict[Key, np.ndarray | str] = {}
    for key in sorted(keys, key=lambda key: key.task == AVERAGE):
        if key.task == AVERAGE:
            if a.averaged.get(key[1:]) == b.averaged.get(key[1:]):
                differences[key] = mean_of_tasks(differences, key, a, b)
            continue
        left, right = resampled(a, items_of_a, key, "A"), resampled(b, items_of_b, key, "B")
        if isinstance(left, str) or isinstance(right, str):
            differences[key] = left if isinstance(left, str) else right
        elif same_examples(items_of_a[key[:3]], items_of_b[key[:3]]):
            differences[key] = left - right
        else:
            differences[key] = "cannot say: different examples"
    return differences


def resampled(side: Side, items: dict, key: Key, name: str) -> np.ndarray | str:
    """A side's figure for one task in every resample, (RESAMPLES,), or why there is none.

    The draws depend on `key` alone; `items` belong to the side's file, `name` is for the reason.
    """
    examples = items.get(key[:3])
    if key not in side.headline or examples is None:
        return f"{NO_EXAMPLES} {name}"
    recomputed, stated = score_of(examples), side.scores[key].mean
    if abs(recomputed - stated) > TOLERANCE:  # the examples are from another evaluation
        return f"cannot say: the examples of {name} give {recomputed:.2f}, its row {stated:.2f}"
    return resampled_figures(examples, RESAMPLES, draws_of(key))


def mean_of_tasks(
    resampled: Mapping[Key, np.ndarray | str], key: Key, *sides: Side
) -> np.ndarray | str:
    """The average over the sides' tasks in every resample, or why there is none.

    Tasks are drawn independently.
    """
    tasks = [Key(task, *key[1:]) for task in sorted(sides[0].averaged.get(key[1:], ()))]
    if not tasks:
        return f"cannot say: no tasks of {key}"
    figures = []
    for task in tasks:
        drawn = resampled[task]
        if isinstance(drawn, str):
            return drawn
        figures.append(drawn)
    for side in sides:
        mean = float(np.mean([side.scores[task].mean for task in tasks]))
        value = side.scores[key].mean
        if abs(mean - value) > TOLERANCE:  # a task's row is from another evaluation
            said = f"the tasks of {side.label} have the mean {mean:.2f}, its row {key} {value:.2f}"
            return f"cannot say: {said}"
    return np.mean(figures, axis=0)


def draws_of(key: Key) -> np.random.Generator:
    return np.random.default_rng([SEED, zlib.crc32("|".join(key).encode())])


def same_examples(left: Items, right: Items) -> bool:
    """Whether both sides have the same gold scores or examples."""
    name = "gold" if "gold" in left else "example"
    return name in right and np.array_equal(left[name], right[name])


def score_of(items: Items) -> float:
    """Spearman's correlation of pairs, or the mean over examples, x 100."""
    if "gold" in items:
        return float(spearman(items["similarity"], items["gold"]))
    return 100 * float(items["value"].mean())


def figure(items: Items, index: np.ndarray) -> np.ndarray:
    """`score_of` of each row of example indices, (R, n) -> (R,)."""
    if "value" in items:
        return 100 * items["value"][index].mean(axis=1)
    return spearman(items["similarity"][index], items["gold"][index])


def resampled_figures(items: Items, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """The metric of one side in every resample of its n examples, (resamples,).

    Two calls with the same examples and generators in the same state give the paired bootstrap
    (Efron and Tibshirani 1993): both use the same drawn examples, `rng.integers(n, size=(resamples,
    n))`.
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
    """Welch's t interval for the difference of two means over independent runs."""
    assert a.std is not None and b.std is not None
    difference = a.mean - b.mean
    parts = [(a.std**2 / a.runs, a.runs - 1), (b.std**2 / b.runs, b.runs - 1)]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return difference, difference
    freedom = variance**2 / sum(part**2 / free for part, free in parts)
    half = _t(freedom) * math.sqrt(variance)
    return difference - half, difference + half


def _t(freedom: float) -> float:
    """The 97.5 % quantile of Student's t distribution."""
    from scipy.stats import t  # here: most commands need no quantile, and scipy takes a while

    return float(t.ppf(0.975, freedom))


def prediction(difference: float, known: Score, runs: int) -> tuple[float, float]:
    """The prediction interval of a difference to `known`, whose spread over runs is known.

    It contains 0 exactly if the mean of the `runs` runs lies in the prediction interval of `known`,
    mean ± t(0.975, n - 1) s sqrt(1 / n + 1 / runs). Both sides are assumed to have the same spread.
    """
    assert known.std is not None
    half = _t(known.runs - 1) * known.std * math.sqrt(1 / known.runs + 1 / runs)
    return difference - half, difference + half
