"""Compare two sides figure by figure: A - B, its 95 % interval and a verdict.

The interval is over test examples (paired bootstrap) or over runs (Welch, prediction).
"""

import math
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from eval.compare.sides import Score, Side, published
from eval.metrics.correlation import spearman
from eval.scores import AVERAGE, Key, read_items

Items = Mapping[
    str, np.ndarray
]  # `similarity` and `gold`, or `value`, each (n,): see `eval.scores.Result`
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
        return ABOVE if self.outcome.low > 0 else BELOW if self.outcome.high < 0 else INSIDE

    def cells(self) -> list[str]:
        """A table line with the columns `COLUMNS`; both sides must have the figure."""
        task = f"{self.key} against {self.against}" if self.against else str(self.key)
        interval = (
            "-"
            if isinstance(self.outcome, str)
            else f"{self.outcome.low:+.2f} to {self.outcome.high:+.2f}"
        )
        return [task, str(self.a), str(self.b), f"{self.difference:+.2f}", interval, self.verdict]

    def row(self) -> dict:
        interval = (
            dict.fromkeys(("low", "high", "method"))
            if isinstance(self.outcome, str)
            else asdict(self.outcome)
        )
        sides = {}
        for name, score in (("a", self.a), ("b", self.b)):
            sides |= (
                {name: score.mean, f"{name}_std": score.std, f"{name}_runs": score.runs}
                if score
                else {name: None}
            )
        rest = {
            "difference": self.difference,
            **interval,
            "verdict": self.verdict,
            "against": self.against,
        }
        return {**self.key._asdict(), **sides, **rest}


def compare(a: Side, b: Side, resamples: int = RESAMPLES, seed: int = SEED) -> list[Line]:
    """Every figure of either side, those missing in one side last.

    One file each: paired bootstrap over the test examples. Several files each: Welch's interval
    over runs. One side with a known spread (published, or our files against one of ours):
    prediction interval. Otherwise no verdict.

    A published single run may point to a record with its method's spread; the other side is then
    also compared with that record, in further lines.
    """
    keys = list(dict.fromkeys([*a.headline, *b.headline]))
    shared = [key for key in keys if key in a.scores and key in b.scores]
    drawn = bootstrap(a, b, shared, resamples, seed) if a.file and b.file else {}
    lines = [
        Line(key, a.scores[key], b.scores[key], _outcome(a, b, key, drawn.get(key)))
        for key in shared
    ]
    for name, sides in (
        (b.spread, lambda: (a, published(b.spread))),
        (a.spread, lambda: (published(a.spread), b)),
    ):
        if name:
            left, right = sides()
            both = [key for key in shared if key in left.scores and key in right.scores]
            lines += [
                Line(key, left.scores[key], right.scores[key], _outcome(left, right, key), name)
                for key in both
            ]
    missing = {
        key: "missing in A" if key in b.scores else "missing in B"
        for key in keys
        if key not in shared
    }
    return lines + [
        Line(key, a.scores.get(key), b.scores.get(key), reason) for key, reason in missing.items()
    ]


def _outcome(
    a: Side, b: Side, key: Key, resampled: np.ndarray | str | None = None
) -> Interval | str:
    left, right = a.scores[key], b.scores[key]
    tasks = [
        side.averaged.get(key[1:]) for side in (a, b)
    ]  # not known of an average that a file has alone
    if key.task == AVERAGE and all(tasks) and tasks[0] != tasks[1]:
        return "cannot say: averages over different tasks"
    if left.examples and right.examples and left.examples != right.examples:
        return f"cannot say: different examples, {left.examples} against {right.examples}"
    if left.protocol and right.protocol and left.protocol != right.protocol:
        return f"cannot say: protocol {left.protocol} against {right.protocol}"
    if resampled is not None:
        return (
            resampled
            if isinstance(resampled, str)
            else Interval(*percentile(resampled), "bootstrap")
        )
    if left.std is not None and right.std is not None and a.published == b.published:
        return Interval(*welch(left, right), "welch")
    # A published figure is judged by its own method's spread, never by that of our runs.
    for known, other, above in (
        (right, left, b.published >= a.published),
        (left, right, a.published >= b.published),
    ):
        if known.std is not None and above:
            return Interval(*prediction(left.mean - right.mean, known, other.runs), "prediction")
    return (
        "cannot say from one run"
        if 1 in (left.runs, right.runs)
        else "cannot say: no spread over the runs is known"
    )


def bootstrap(
    a: Side, b: Side, keys: list[Key], resamples: int, seed: int
) -> dict[Key, np.ndarray | str]:
    """A - B in every resample, (resamples,), or why there is none; each side must be one file.

    Raises:
        BadInput: an items file is damaged.
    """
    items = read_items(a.file), read_items(b.file)
    differences: dict[Key, np.ndarray | str] = {}
    for key in sorted(keys, key=lambda key: key.task == AVERAGE):
        if key.task == AVERAGE:
            if a.averaged.get(key[1:]) == b.averaged.get(key[1:]):
                differences[key] = mean_of_tasks(differences, key, a, b)
            continue
        left, right = (
            resampled(side, part, key, resamples, seed, name)
            for name, side, part in zip("AB", (a, b), items, strict=True)
        )
        reasons = [figures for figures in (left, right) if isinstance(figures, str)]
        counts = {side.scores[key].examples for side in (a, b)}
        if not reasons and (
            len(counts) > 1 or not same_examples(*(part[key[:3]] for part in items))
        ):
            reasons = ["cannot say: different examples"]
        differences[key] = reasons[0] if reasons else left - right
    return differences


def resampled(
    side: Side, items: dict, key: Key, resamples: int, seed: int, name: str
) -> np.ndarray | str:
    """A side's figure for one task in every resample, (resamples,), or why there is none.

    The draws depend on `seed` and `key` alone; `items` belong to the side's file, `name` is for the
    reason.
    """
    examples = items.get(key[:3])
    if key not in side.headline or examples is None:
        return f"{NO_EXAMPLES} {name}"
    recomputed = float(figure(examples, np.arange(len(next(iter(examples.values()))))[None])[0])
    if (
        abs(recomputed - side.scores[key].mean) > TOLERANCE
    ):  # the examples are from another evaluation
        return f"cannot say: the examples of {name} give {recomputed:.2f}, its row {side.scores[key].mean:.2f}"
    return resampled_figures(examples, resamples, draws_of(key, seed))


def mean_of_tasks(
    resampled: Mapping[Key, np.ndarray | str], key: Key, *sides: Side
) -> np.ndarray | str:
    """The average over the sides' tasks in every resample, or why there is none; tasks are drawn independently."""
    tasks = [Key(task, *key[1:]) for task in sorted(sides[0].averaged.get(key[1:], ()))]
    reasons = [resampled[task] for task in tasks if isinstance(resampled[task], str)]
    if reasons or not tasks:
        return reasons[0] if reasons else f"cannot say: no tasks of {key}"
    for side in sides:
        mean, value = (
            float(np.mean([side.scores[task].mean for task in tasks])),
            side.scores[key].mean,
        )
        if abs(mean - value) > TOLERANCE:  # a task's row is from another evaluation
            return f"cannot say: the tasks of {side.label} have the mean {mean:.2f}, its row {key} {value:.2f}"
    return np.mean([resampled[task] for task in tasks], axis=0)


def draws_of(key: Key, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32("|".join(key).encode())])


def same_examples(left: Items, right: Items) -> bool:
    """Whether both sides have the same gold scores or examples; for older files, the same number of them."""
    shared = left.keys() & right.keys()
    if not shared:
        return False
    known = next(iter(shared & {"gold", "example"}), None)
    return (
        np.array_equal(left[known], right[known])
        if known
        else len(left["value"]) == len(right["value"])
    )


def figure(items: Items, index: np.ndarray) -> np.ndarray:
    """The metric x 100 of each row of example indices, (R, n) -> (R,): mean, or Spearman of pairs."""
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
    """Welch's t interval for the difference of two means over independent runs; both need a standard deviation."""
    difference = a.mean - b.mean
    parts = [(score.std**2 / score.runs, score.runs - 1) for score in (a, b)]
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
    half = _t(known.runs - 1) * known.std * math.sqrt(1 / known.runs + 1 / runs)
    return difference - half, difference + half
