"""Compare two sides figure by figure: A - B, its 95 % interval and a verdict.

The interval is over test examples (paired bootstrap) or over runs (Welch, prediction).
"""

import math
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
from scipy.stats import rankdata, t

from common.errors import BadInput
from eval.compare.sides import Score, Side, published
from eval.scores import AVERAGE, Key, read_items

Items = Mapping[str, np.ndarray]  # `similarity` and `gold`, or `value`, each (n,): see `eval.scores.Result`
RESAMPLES, SEED = 1000, 0  # of the bootstrap
DRAWN_AT_ONCE = 500_000  # resampled examples held at once, about 4 MB per array
UNLIKE = "cannot say: averages", "cannot say: protocol", "cannot say: different examples"  # figures of different things
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
        against: the published record used instead of a published single run, because it shows the method's spread.
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
        interval = "-" if isinstance(self.outcome, str) else f"{self.outcome.low:+.2f} to {self.outcome.high:+.2f}"
        return [task, str(self.a), str(self.b), f"{self.difference:+.2f}", interval, self.verdict]

    def row(self) -> dict:
        interval = dict.fromkeys(("low", "high", "method")) if isinstance(self.outcome, str) else asdict(self.outcome)
        sides = {}
        for name, score in (("a", self.a), ("b", self.b)):
            sides |= {name: score.mean, f"{name}_std": score.std, f"{name}_runs": score.runs} if score else {name: None}
        rest = {"difference": self.difference, **interval, "verdict": self.verdict, "against": self.against}
        return {**self.key._asdict(), **sides, **rest}


def compare(a: Side, b: Side, resamples: int = RESAMPLES, seed: int = SEED) -> list[Line]:
    """Every figure of either side, those missing in one side last.

    One file each: paired bootstrap over the test examples. Several files each: Welch's interval over runs. One side
    with a known spread (published, or our files against one of ours): prediction interval. Otherwise no verdict.

    A published single run may point to a record with its method's spread; the other side is then also compared with
    that record, in further lines.

    Raises:
        BadInput: no figure in common, or two files scored on different test data.
    """
    keys = list(dict.fromkeys([*a.headline, *b.headline]))
    shared = [key for key in keys if key in a.scores and key in b.scores]
    if not shared:
        names = [", ".join(map(str, side.headline)) for side in (a, b)]
        raise BadInput(f"{a.label} and {b.label} have nothing in common: {names[0]} against {names[1]}")
    resampled = bootstrap(a, b, shared, resamples, seed) if a.file and b.file else {}
    lines = [Line(key, a.scores[key], b.scores[key], _judged(a, b, key, resampled.get(key))) for key in shared]
    if b.spread:
        lines += _against(a, published(b.spread), shared, b.spread)
    if a.spread:
        lines += _against(published(a.spread), b, shared, a.spread)
    for key in keys:
        if key not in shared:
            reason = "missing in A" if key in b.scores else "missing in B"
            lines.append(Line(key, a.scores.get(key), b.scores.get(key), reason))
    return lines


def _against(a: Side, b: Side, keys: list[Key], name: str) -> list[Line]:
    shared = [key for key in keys if key in a.scores and key in b.scores]
    return [Line(key, a.scores[key], b.scores[key], _judged(a, b, key, None), name) for key in shared]


def _judged(a: Side, b: Side, key: Key, resampled: np.ndarray | str | None) -> Interval | str:
    one, other = a.scores[key], b.scores[key]
    tasks = [side.averaged.get(key[1:]) for side in (a, b)]  # not known of an average that a file has alone
    if key.task == AVERAGE and all(tasks) and tasks[0] != tasks[1]:
        return "cannot say: averages over different tasks"
    if one.examples and other.examples and one.examples != other.examples:
        return f"cannot say: different examples, {one.examples} against {other.examples}"
    if one.protocol and other.protocol and one.protocol != other.protocol:
        return f"cannot say: protocol {one.protocol} against {other.protocol}"
    if isinstance(resampled, str):
        return resampled
    if resampled is not None:
        return Interval(*percentile(resampled), "bootstrap")
    return _over_runs(one, other, a.published, b.published)


def _over_runs(a: Score, b: Score, a_published: bool, b_published: bool) -> Interval | str:
    if a.std is not None and b.std is not None and a_published == b_published:
        return Interval(*welch(a, b), "welch")
    # A published figure is judged by its own method's spread, never by that of our runs.
    if b.std is not None and b_published >= a_published:
        return Interval(*prediction(a.mean - b.mean, b, a.runs), "prediction")
    if a.std is not None and a_published >= b_published:
        return Interval(*prediction(a.mean - b.mean, a, b.runs), "prediction")
    return "cannot say from one run" if 1 in (a.runs, b.runs) else "cannot say: no spread over the runs is known"


def bootstrap(a: Side, b: Side, keys: list[Key], resamples: int, seed: int) -> dict[Key, np.ndarray | str]:
    """A - B in every resample, (resamples,), or why there is none; each side must be one file.

    Raises:
        BadInput: the two files have different examples, or an items file is damaged.
    """
    items = read_items(a.file), read_items(b.file)
    differences: dict[Key, np.ndarray | str] = {}
    for key in sorted(keys, key=lambda key: key.task == AVERAGE):
        if key.task != AVERAGE:
            _refuse_other_examples(a, b, key, items)
            sides = zip("AB", (a, b), items, strict=True)
            one, other = (resampled(side, examples, key, resamples, seed, name) for name, side, examples in sides)
            reasons = [side for side in (one, other) if isinstance(side, str)]
            differences[key] = reasons[0] if reasons else one - other
        elif a.averaged.get(key[1:]) == b.averaged.get(key[1:]):
            differences[key] = mean_of_tasks(differences, key, a, b)
    return differences


def _refuse_other_examples(a: Side, b: Side, key: Key, items: tuple[dict, dict]) -> None:
    one, other = (part.get(key[:3]) if key in side.headline else None for side, part in zip((a, b), items, strict=True))
    same = same_examples(one, other) if one and other else True
    if not same or a.scores[key].examples != b.scores[key].examples:
        raise BadInput(f"{key}: {a.file} and {b.file} were scored on different examples; score both on the same data")


def resampled(side: Side, items: dict, key: Key, resamples: int, seed: int, name: str = "") -> np.ndarray | str:
    """A side's figure for one task in every resample, (resamples,), or why there is none.

    The draws depend on `seed` and `key` alone; `items` belong to the side's file, `name` is for the reason.
    """
    examples = items.get(key[:3])
    if key not in side.headline or examples is None:
        return f"{NO_EXAMPLES} {name}"
    recomputed = float(figure(examples, np.arange(len(next(iter(examples.values()))))[None])[0])
    if abs(recomputed - side.scores[key].mean) > TOLERANCE:  # the examples are from another evaluation
        return f"cannot say: the examples of {name} give {recomputed:.2f}, its row {side.scores[key].mean:.2f}"
    return resampled_figures(examples, resamples, draws_of(key, seed))


def mean_of_tasks(resampled: Mapping[Key, np.ndarray | str], key: Key, *sides: Side) -> np.ndarray | str:
    """The average over the sides' tasks in every resample, or why there is none; tasks are drawn independently."""
    tasks = [Key(task, *key[1:]) for task in sorted(sides[0].averaged.get(key[1:], ()))]
    reasons = [resampled[task] for task in tasks if isinstance(resampled[task], str)]
    if reasons or not tasks:
        return reasons[0] if reasons else f"cannot say: no tasks of {key}"
    for side in sides:
        mean, value = float(np.mean([side.scores[task].mean for task in tasks])), side.scores[key].mean
        if abs(mean - value) > TOLERANCE:  # a task's row is from another evaluation
            return f"cannot say: the tasks of {side.label} have the mean {mean:.2f}, its row {key} {value:.2f}"
    return np.mean([resampled[task] for task in tasks], axis=0)


def draws_of(key: Key, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32("|".join(key).encode())])


def same_examples(one: Items, other: Items) -> bool:
    """Whether both sides have the same gold scores or examples; for older files, the same number of them."""
    shared = one.keys() & other.keys()
    if not shared:
        return False
    known = next(iter(shared & {"gold", "example"}), None)
    return np.array_equal(one[known], other[known]) if known else len(one["value"]) == len(other["value"])


def figure(items: Items, index: np.ndarray) -> np.ndarray:
    """The metric x 100 of each row of example indices, (R, n) -> (R,): Spearman of pairs, the mean of values."""
    if "value" in items:
        return 100 * items["value"][index].mean(axis=1)
    return 100 * _correlations(rankdata(items["similarity"][index], axis=1), rankdata(items["gold"][index], axis=1))


def resampled_figures(items: Items, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """The metric of one side in every resample of its n examples, (resamples,).

    Two calls with the same examples and generators in the same state give the paired bootstrap (Efron and Tibshirani
    1993): both use the same drawn examples, `rng.integers(n, size=(resamples, n))`.
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
    half = float(t.ppf(0.975, freedom)) * math.sqrt(variance)
    return difference - half, difference + half


def prediction(difference: float, known: Score, runs: int) -> tuple[float, float]:
    """The prediction interval of a difference to `known`, whose spread over runs is known.

    It contains 0 exactly if the mean of the `runs` runs lies in the prediction interval of `known`,
    mean ± t(0.975, n - 1) s sqrt(1 / n + 1 / runs). Both sides are assumed to have the same spread.
    """
    half = float(t.ppf(0.975, known.runs - 1)) * known.std * math.sqrt(1 / known.runs + 1 / runs)
    return difference - half, difference + half


def _correlations(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Pearson's correlation of each row, (R, n) and (R, n) -> (R,); 0 if a row is constant."""
    left, right = (x - x.mean(axis=1, keepdims=True) for x in (left, right))
    product = np.einsum("ij,ij->i", left, right)
    norms = np.sqrt(np.einsum("ij,ij->i", left, left) * np.einsum("ij,ij->i", right, right))
    return np.divide(product, norms, out=np.zeros(len(product)), where=norms > 0)
