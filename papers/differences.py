"""How far two arms are apart: the one statistic of all pages, and the words that it allows.

Arms that share seeds, and with them the order of the text, are compared in pairs by seed: the mean
of the differences, and Student's t interval of it. With several comparisons on a page, p is
adjusted by Holm's method over all of them, and the words follow it. Two seeds never show an order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

LEVEL = 0.5  # points: arms are level if the whole interval of their difference is closer to 0
SIGNIFICANT = 0.05  # an adjusted p below it shows an order
FEWEST = 3  # seeds that can show one


@dataclass(frozen=True)
class Difference:
    """The mean difference of two arms over seeds.

    Attributes:
        mean: in points; nan without a seed.
        low, high: the 95 % interval; nan for less than two seeds.
        p: of a difference of 0; nan for less than three seeds.
        seeds: how many both arms have.
    """

    mean: float
    low: float
    high: float
    p: float
    seeds: int


def over_seeds(differences: pd.Series) -> Difference:
    """Student's interval and test of the differences between runs of equal seed, one per seed."""
    values = differences.to_numpy(dtype=float)
    count, mean = len(values), float(differences.mean())
    if count < 2:
        return Difference(mean, float("nan"), float("nan"), float("nan"), count)
    error = float(stats.sem(values))
    half = error * float(stats.t.ppf(0.975, count - 1))
    p = float("nan")
    if count >= FEWEST and error > 0:
        p = 2 * float(stats.t.sf(abs(mean) / error, count - 1))
    elif count >= FEWEST:
        p = float(mean == 0)
    return Difference(mean, mean - half, mean + half, p, count)


def holm(p: Sequence[float]) -> list[float]:
    """The p adjusted by Holm's method (1979), in the order given; nan is no comparison."""
    ordered = pd.Series(p, dtype=float).dropna().sort_values()
    factors = np.arange(len(ordered), 0, -1)
    adjusted = (ordered * factors).cummax().clip(upper=1)
    return adjusted.reindex(range(len(p))).tolist()


def in_words(difference: Difference, adjusted: float) -> str:
    """What a difference with this adjusted p shows about the first arm."""
    if difference.seeds < FEWEST:
        return {0: "no pair", 1: "one seed", 2: "two seeds"}[difference.seeds]
    within = max(-difference.low, difference.high) < LEVEL
    if adjusted < SIGNIFICANT:
        order = "above" if difference.mean > 0 else "below"
        return f"{order}, by less than {LEVEL}" if within else order
    return "level" if within else "not told apart"


def described(difference: Difference, adjusted: float) -> list[str]:
    """The cells of a table with the columns `COLUMNS`."""
    return [
        "-" if pd.isna(difference.mean) else f"{difference.mean:+.2f}",
        "-" if pd.isna(difference.low) else f"{difference.low:+.2f} to {difference.high:+.2f}",
        str(difference.seeds),
        "-" if pd.isna(adjusted) else f"{adjusted:.3f}" if adjusted >= 0.0005 else "<0.001",
        in_words(difference, adjusted),
    ]


COLUMNS = ["points", "95 % interval", "seeds", "p, Holm", "reading"]
