"""ConSERT's Figure 4: the average of the seven STS sets without the most frequent tokens, as a task.

Tokens are counted over STS-B test, as in the figure; what is averaged, and how tokens are left out, is as in
`eval.analyse.tokens`, which looks at one set.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.errors import BadInput
from eval.analyse.tokens import TokenAverages, most_frequent
from eval.encode import Encode
from eval.scores import AVERAGE, Result, row
from eval.sts import STS_TEST, Pairs, correlation, cosines, merged
from models.pooling import pooling_named

METRIC = "spearman without {} tokens"
POOLING = "avg_top2"  # ConSERT section 4.1


def count_of(metric: str) -> int:
    """How many tokens the metric of a column leaves out; BadInput where it says no number."""
    before, after = METRIC.split("{}")
    number = metric.removeprefix(before).removesuffix(after)
    if metric != METRIC.format(number) or not number.isdecimal():
        raise BadInput(f"metric '{metric}' is unknown to the tables")
    return int(number)


@dataclass(frozen=True)
class FrequentTokens:
    """One row a number of removed tokens: the mean of the seven sets, each rounded to two decimals."""

    removed: tuple[int, ...]
    name: str = AVERAGE
    split: str = "test"

    def load(self, data_dir: str | Path) -> dict[str, Pairs]:
        """The pairs of each set."""
        return {task.name: merged(task.load(data_dir)) for task in STS_TEST}

    def score(self, encode: Encode, data_dir: str | Path) -> Result:
        """`encode.module` is a SentenceEncoder; its own pooling and head play no part."""
        sets = self.load(data_dir)
        tokens = TokenAverages(encode, encode.module.backbone, pooling_named(POOLING).pool)
        frequent = most_frequent(tokens.ids(sets["STS-B"].left + sets["STS-B"].right), max(self.removed))
        scored = np.array([self._one(tokens, pairs, frequent) for pairs in sets.values()])  # (sets, K)
        count = sum(len(pairs.gold) for pairs in sets.values())
        means = zip(self.removed, scored.round(2).mean(axis=0), strict=True)
        rows = [row(AVERAGE, "test", METRIC.format(k), "mean of tasks", count, mean) for k, mean in means]
        return Result(rows)

    def _one(self, tokens: TokenAverages, pairs: Pairs, frequent: list[int]) -> list[float]:
        vectors = tokens.averages(pairs.left + pairs.right, frequent, self.removed)
        left, right = np.split(vectors, 2)
        return [correlation(cosines(left[:, k], right[:, k]), np.array(pairs.gold)) for k in range(len(self.removed))]
