"""The comparison of two sides, figure by figure: difference, 95 % interval and verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from common.errors import BadInput
from eval.compare.intervals import bootstrap, percentile, prediction, welch
from eval.compare.sides import Score, Side
from eval.scores import AVERAGE, Key

ABOVE, BELOW, INSIDE = "A is above B", "A is below B", "inside (no difference shown)"
COLUMNS = ["task", "A", "B", "A - B", "95 % interval", "verdict"]


@dataclass(frozen=True)
class Interval:
    """A 95 % interval of A - B, and the method behind it: `bootstrap`, `welch` or `prediction`."""

    low: float
    high: float
    method: str


@dataclass(frozen=True)
class Line:
    """One figure of both sides.

    Attributes:
        key: which figure.
        a, b: the scores; None where a side lacks the figure.
        found: the interval, or the reason why there is none.
        against: the published record used in place of a published single run, because it shows the method's spread.
    """

    key: Key
    a: Score | None
    b: Score | None
    found: Interval | str
    against: str | None = None

    @property
    def difference(self) -> float | None:
        """A - B."""
        return self.a.mean - self.b.mean if self.a and self.b else None

    @property
    def verdict(self) -> str:
        """The conclusion, or the reason why there is none."""
        if isinstance(self.found, str):
            return self.found
        return ABOVE if self.found.low > 0 else BELOW if self.found.high < 0 else INSIDE

    def cells(self) -> list[str]:
        """The line of a table with the columns `COLUMNS`; both sides must have the figure."""
        task = f"{self.key} against {self.against}" if self.against else str(self.key)
        interval = "-" if isinstance(self.found, str) else f"{self.found.low:+.2f} to {self.found.high:+.2f}"
        return [task, str(self.a), str(self.b), f"{self.difference:+.2f}", interval, self.verdict]

    def row(self) -> dict:
        """The row of the output file."""
        interval = {"low": None, "high": None, "method": None} if isinstance(self.found, str) else asdict(self.found)
        sides = {}
        for name, score in (("a", self.a), ("b", self.b)):
            sides |= {name: score.mean, f"{name}_std": score.std, f"{name}_runs": score.runs} if score else {name: None}
        rest = {"difference": self.difference, **interval, "verdict": self.verdict, "against": self.against}
        return {**self.key._asdict(), **sides, **rest}


def compare(
    a: Side, b: Side, resamples: int = 1000, seed: int = 0, record: Callable[[str], Side] | None = None
) -> list[Line]:
    """Every figure that one of the sides shows, the missing ones last.

    One file each: paired bootstrap over the test examples. Several files each: Welch's interval over runs. One side
    with a known spread (published, or our files against one of ours): prediction interval. Otherwise no verdict.

    `record` gives a published record by its id. A published single run may point to a record with its method's spread;
    the other side is then compared with that record too, in further lines.

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
    if record and b.spread:
        lines += _against(a, record(b.spread), shared, b.spread)
    if record and a.spread:
        lines += _against(record(a.spread), b, shared, a.spread)
    for key in keys:
        if key not in shared:
            words = "missing in A" if key in b.scores else "missing in B"
            lines.append(Line(key, a.scores.get(key), b.scores.get(key), words))
    return lines


def _against(a: Side, b: Side, keys: list[Key], name: str) -> list[Line]:
    known = [key for key in keys if key in a.scores and key in b.scores]
    return [Line(key, a.scores[key], b.scores[key], _judged(a, b, key, None), name) for key in known]


def _judged(a: Side, b: Side, key: Key, resampled: np.ndarray | str | None) -> Interval | str:
    one, other = a.scores[key], b.scores[key]
    if key.task == AVERAGE and a.averaged[key[1:]] != b.averaged[key[1:]]:
        return "cannot say: averages over different tasks"
    if one.examples and other.examples and one.examples != other.examples:
        return f"cannot say: {one.examples} examples against {other.examples}"
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
