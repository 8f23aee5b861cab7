"""Analyses of scored pairs: alignment and uniformity, and the cosine by gold score.

Alignment and uniformity: positives should be close, all sentences spread over the sphere; lower is better. Source:
Wang and Isola 2020 (arXiv 2005.10242) with alpha = 2 and t = 2, on STS-B as SimCSE (arXiv 2104.08821, footnote 3):
positives are the pairs with a gold score higher than 4, uniformity is over all sentences. SimCSE took train, dev and
test together (its issues 52 and 128); here it is one split, `test` by default, because encoders are trained and chosen
on the others. A repeated sentence counts once in the uniformity: its zero distance to itself says nothing of the
encoder.

Cosine by gold score: does the cosine use its range, or do even unrelated pairs get 0.8? Source: ConSERT (arXiv
2105.11741) Figure 1, a scatter plot there; here mean and quartiles by bin, so that several models fit one picture.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from common.errors import BadInput
from eval.analyse.analysis import Analysis, Material, Subject
from eval.encode import unit
from eval.sts import correlation, similarities

EDGES = (0, 1, 2, 3, 4, 5)  # of the bins of gold scores
_ROWS = 1024  # of the matrix of distances at a time


def alignment(left: np.ndarray, right: np.ndarray) -> float:
    """Mean squared distance of positive pairs on the unit sphere, two times (N, D) -> 0 to 4."""
    return float(np.square(unit(left) - unit(right)).sum(1).mean())


def uniformity(vectors: np.ndarray) -> float:
    """Log mean exp(-2 |x - y|^2) over pairs of different unit rows, (N, D) -> -8 to 0; 0 is a collapsed encoder."""
    rows = unit(vectors)
    squares, count, total = np.square(rows).sum(1), len(rows), 0.0
    for start in range(0, count, _ROWS):
        part = slice(start, start + _ROWS)
        distances = squares[part, None] + squares - 2 * rows[part] @ rows.T
        total += np.exp(-2 * distances).sum()
    return float(np.log((total - count) / (count * (count - 1))))  # a row has distance 0 to itself


def measure_alignment(subject: Subject, material: Material) -> dict:
    """Both figures with the number of pairs and sentences; BadInput without a positive pair."""
    pairs = material.pairs
    positive = np.flatnonzero(np.array(pairs.gold) > material.above)
    if len(positive) == 0:
        raise BadInput(f"{material.name} has no pair with a gold score above {material.above:g}; give a lower --above")
    left = subject.encode([pairs.left[i] for i in positive])
    right = subject.encode([pairs.right[i] for i in positive])
    return {
        "alignment": alignment(left, right),
        "uniformity": uniformity(subject.encode(material.paired)),
        "above": material.above,
        "positives": len(positive),
        "sentences": len(material.paired),
    }


ALIGNMENT_UNIFORMITY = Analysis(
    about="alignment of positive pairs against uniformity of all sentences (Wang and Isola; SimCSE Figure 3)",
    measure=measure_alignment,
    headlines={
        "alignment": ("alignment (lower is better)", ".3f"),
        "uniformity": ("uniformity (lower is better)", ".3f"),
    },
    needs_pairs=True,
)


def by_gold(cosines: np.ndarray, gold: np.ndarray) -> list[dict]:
    """Mean and quartiles of the cosine for each bin of gold scores, (N,) and (N,) -> a dict for each bin.

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


def measure_by_gold(subject: Subject, material: Material) -> dict:
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


COSINE_BY_GOLD = Analysis(
    about="mean and quartiles of the cosine by gold score (ConSERT Figure 1)",
    measure=measure_by_gold,
    headlines={
        "spearman": ("Spearman x 100 of cosine and gold score", ".2f"),
        "gap": ("mean cosine of gold [4, 5] less that of [0, 1)", ".3f"),
    },
    needs_pairs=True,
)
