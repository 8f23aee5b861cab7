"""Analyses of sentence vectors, all on unit vectors, because the cosine ignores length.

Alignment and uniformity: positives should be close, all sentences spread over the sphere; lower is better. Source:
Wang and Isola 2020 (arXiv 2005.10242) with alpha = 2 and t = 2, on STS-B as in SimCSE (arXiv 2104.08821, footnote 3):
positives are the pairs with a gold score above 4, uniformity is over all sentences. SimCSE used train, dev and test
together (its issues 52 and 128); here it is one split, `test` by default, because encoders are trained and selected on
the others. Repeated sentences count once in the uniformity: their distance is zero for every encoder.

Cosine by gold score: does the cosine use its range, or do even unrelated pairs score 0.8? Source: ConSERT (arXiv
2105.11741) Figure 1, a scatter plot there; here mean and quartiles by bin, so that several models fit one picture.

Anisotropy: do the vectors cover all directions, or only a narrow cone? Sources: the mean cosine of random sentences is
Ethayarajh's measure (arXiv 1909.00512); SimCSE (arXiv 2104.08821, section 5) argues that the contrastive loss flattens
the spectrum; the effective rank is Roy and Vetterli's (2007).
"""

from itertools import pairwise

import numpy as np
from scipy.stats import entropy

from common.errors import BadInput
from eval.analyse.analysis import Analysis, Material
from eval.encode import Encoder, unit
from eval.sts import correlation, similarities

ABOVE = 4.0  # pairs with a higher gold score are positives
EDGES = (0, 1, 2, 3, 4, 5)  # bins of gold scores
_ROWS = 1024  # of the distance matrix at a time


def alignment(left: np.ndarray, right: np.ndarray) -> float:
    """Mean squared distance of positive pairs on the unit sphere, (N, D) and (N, D) -> 0 to 4."""
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


def measure_alignment(encode: Encoder, material: Material) -> dict:
    """Alignment, uniformity and the numbers of pairs and sentences; BadInput without a positive pair."""
    pairs = material.pairs
    positive = np.flatnonzero(np.array(pairs.gold) > material.above)
    if len(positive) == 0:
        raise BadInput(f"{material.name} has no pair with a gold score above {material.above:g}; lower --above")
    left = encode([pairs.left[i] for i in positive])
    right = encode([pairs.right[i] for i in positive])
    return {
        "alignment": alignment(left, right),
        "uniformity": uniformity(encode(material.paired)),
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
    """Mean and quartiles of the cosine by bin of gold scores, (N,) and (N,) -> one dict per bin.

    Bins are [0, 1), [1, 2), ..., [4, 5]. The values of an empty bin are None.
    """
    bins = np.minimum(np.floor(gold), EDGES[-2]).astype(int)
    results = []
    for number, (low, high) in enumerate(pairwise(EDGES)):
        inside = cosines[bins == number]
        names = ("mean", "lower_quartile", "median", "upper_quartile")
        values = [inside.mean(), *np.percentile(inside, [25, 50, 75])] if len(inside) else [None] * 4
        figures = {name: None if value is None else float(value) for name, value in zip(names, values, strict=True)}
        results.append({"from": low, "to": high, "pairs": len(inside), **figures})
    return results


def measure_by_gold(encode: Encoder, material: Material) -> dict:
    """The bins, Spearman x 100, and the gap between the means of the last and the first bin."""
    cosines, gold = similarities(encode, material.pairs), np.array(material.pairs.gold)
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


def mean_cosine(vectors: np.ndarray) -> float:
    """Mean cosine over all pairs of different rows, (N, D) -> -1 to 1, exact.

    |sum_i u_i|^2 counts every pair twice and each row with itself once.
    """
    rows = unit(vectors)
    count = len(rows)
    return float((np.square(rows.sum(0)).sum() - np.square(rows).sum()) / (count * (count - 1)))


def spectrum(vectors: np.ndarray) -> np.ndarray:
    """Singular values of the centred unit vectors, divided by the largest, descending, (N, D) -> (min(N - 1, D),).

    All zero if the vectors are equal within float32 precision.
    """
    rows = unit(vectors)
    values = np.linalg.svd(rows - rows.mean(0), compute_uv=False)[: len(rows) - 1]  # centring costs one dimension
    largest = values[0]
    if largest <= np.finfo(np.float32).eps * np.sqrt(len(rows)):
        return np.zeros_like(values)
    return values / largest


def effective_rank(values: np.ndarray) -> float:
    """Exponential of the entropy of the singular values, normalised to sum 1, (R,) -> 1 to R; 0 if all are zero."""
    return float(np.exp(entropy(values))) if values.any() else 0.0


def measure_anisotropy(encode: Encoder, material: Material) -> dict:
    vectors = encode(material.sentences)
    values = spectrum(vectors)
    return {
        "mean_cosine": mean_cosine(vectors),
        "effective_rank": effective_rank(values),
        "dimensions": vectors.shape[1],
        "sentences": len(vectors),
        "spectrum": values.tolist(),
    }


ANISOTROPY = Analysis(
    about="mean cosine of random sentences, singular values and effective rank of the centred vectors",
    measure=measure_anisotropy,
    headlines={"mean_cosine": ("mean cosine of random pairs", ".3f"), "effective_rank": ("effective rank", ".1f")},
)
