"""How far two arms of a study are apart: the one statistic of all its pages."""

from dataclasses import dataclass

import pandas as pd
from scipy import stats


@dataclass(frozen=True)
class Difference:
    """The mean difference of two arms, and its 95 % interval; nan where there are too few seeds."""

    mean: float
    low: float
    high: float
    seeds: int

    def cells(self) -> tuple[str, str]:
        """The mean and its interval in a table."""
        mean = "-" if pd.isna(self.mean) else f"{self.mean:+.2f}"
        interval = "-" if pd.isna(self.low) else f"{self.low:+.2f} to {self.high:+.2f}"
        return mean, interval


def over_seeds(differences: pd.Series) -> Difference:
    """Student's t interval of differences between runs of equal seed, one per seed."""
    count = len(differences)
    half = differences.sem() * stats.t.ppf(0.975, count - 1) if count > 1 else float("nan")
    mean = differences.mean()
    return Difference(mean, mean - half, mean + half, count)
