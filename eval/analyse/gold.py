"""Cosine by gold score: does the cosine use its range, or is even the unrelated pair at 0.8?

Source: ConSERT (arXiv 2105.11741) Figure 1, there as a cloud of points; here as mean and quartiles by bin, which
several models can share a picture of.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from eval.analyse.analysis import Analysis, Material, Subject
from eval.sts.tasks import correlation, similarities

EDGES = (0, 1, 2, 3, 4, 5)


def by_gold(cosines: np.ndarray, gold: np.ndarray) -> list[dict]:
    """Mean and quartiles of the cosine per bin of gold scores, (N,) and (N,) -> one dict a bin.

    Bins are [0, 1), [1, 2), ..., [4, 5]; the last one holds the score 5 too. An empty bin has None for its figures.
    """
    bins = np.minimum(np.floor(gold), EDGES[-2]).astype(int)
    found = []
    for number, (low, high) in enumerate(pairwise(EDGES)):
        inside = cosines[bins == number]
        names = ("mean", "lower_quartile", "median", "upper_quartile")
        values = [inside.mean(), *np.percentile(inside, [25, 50, 75])] if len(inside) else [None] * 4
        figures = {name: None if value is None else float(value) for name, value in zip(names, values, strict=True)}
        found.append({"from": low, "to": high, "pairs": len(inside), **figures})
    return found


def measure(subject: Subject, material: Material) -> dict:
    """The bins, Spearman x 100, and the gap between the means of the last and the first bin."""
    cosines, gold = similarities(subject.encode, material.pairs), np.array(material.pairs.gold)
    bins = by_gold(cosines, gold)
    first, last = bins[0]["mean"], bins[-1]["mean"]
    return {
        "spearman": correlation(cosines, gold),
        "gap": None if first is None or last is None else last - first,
        "pairs": len(gold),
        "bins": bins,
    }


ANALYSIS = Analysis(
    about="mean and quartiles of the cosine by gold score (ConSERT Figure 1)",
    measure=measure,
    headlines={
        "spearman": ("Spearman x 100 of cosine and gold score", ".2f"),
        "gap": ("mean cosine of gold [4, 5] less that of [0, 1)", ".3f"),
    },
    needs_pairs=True,
)
