"""Analyses of sentence vectors, all on unit vectors, because the cosine ignores length.

Alignment and uniformity: positives should be close, all sentences spread over the sphere; lower is
better. Source: Wang and Isola 2020 (arXiv 2005.10242) with alpha = 2 and t = 2, on STS-B as in
SimCSE (arXiv 2104.08821, footnote 3): positives are the pairs with a gold score above 4, uniformity
is over all sentences. SimCSE used train, dev and test together (its issues 52 and 128); here it is
one split, `test` by default, because encoders are trained and selected on the others. Repeated
sentences count once in the uniformity: their distance is zero for every encoder.

Cosine by gold score: does the cosine use its range, or do even unrelated pairs score 0.8? Source:
ConSERT (arXiv 2105.11741) Figure 1, a scatter plot there; here mean and quartiles by bin, so that
several models fit one picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from eval.metrics.cosine import unit

ABOVE = 4.0  # pairs with a higher gold score are positives
EDGES = (0, 1, 2, 3, 4, 5)  # bins of gold scores
HEADLINES = {  # analysis -> entry of its result -> name in a table, format
    "alignment_uniformity": {
        "alignment": ("alignment (lower is better)", ".3f"),
        "uniformity": ("uniformity (lower is better)", ".3f"),
    },
    "cosine_by_gold": {
        "spearman": ("Spearman x 100 of cosine and gold score", ".2f"),
        "gap": ("mean cosine of gold [4, 5] less that of [0, 1)", ".3f"),
    },
}


def lines(models: Sequence[Mapping[str, dict]]) -> Iterator[list[str]]:
    """The lines of a table: the name of each headline, and a cell per model."""
    for analysis, entries in HEADLINES.items():
        results = [model.get(analysis, {}) for model in models]
        if not any(results):
            continue
        for entry, (title, form) in entries.items():
            values = [result.get(entry) for result in results]
            yield [title, *("none" if value is None else format(value, form) for value in values)]


def alignment(left: np.ndarray, right: np.ndarray) -> float:
    """Mean squared distance of positive pairs on the unit sphere, (N, D) and (N, D) -> 0 to 4."""
    return float(np.square(unit(left) - unit(right)).sum(1).mean())


def by_gold(cosines: np.ndarray, gold: np.ndarray) -> list[dict]:
    """Mean and quartiles of the cosine by bin of gold scores, (N,) and (N,) -> one dict per bin.

    Bins are [0, 1), [1, 2), ..., [4, 5]. The values of an empty bin are None.
    """
    bins = np.minimum(np.floor(gold), EDGES[-2]).astype(int)
    results = []
    for number, (low, high) in enumerate(pairwise(EDGES)):
        inside = cosines[bins == number]
        result: dict[str, Any] = {"from": low, "to": high, "pairs": len(inside)}
        result |= dict.fromkeys(("mean", "lower_quartile", "median", "upper_quartile"))
        if len(inside):
            lower, median, upper = np.percentile(inside, [25, 50, 75]).tolist()
            result |= {"mean": float(inside.mean()), "median": median}
            result |= {"lower_quartile": lower, "upper_quartile": upper}
        results.append(result)
    return results
