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

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import entropy

from common.errors import BadInput
from eval.encode import Encoder, unit
from eval.sts import Pairs, correlation, similarities
from eval.text_files import read_lines, tidy

ABOVE = 4.0  # pairs with a higher gold score are positives
EDGES = (0, 1, 2, 3, 4, 5)  # bins of gold scores
_ROWS = 1024  # of the distance matrix at a time


@dataclass(frozen=True)
class Material:
    """The data on which every model is measured.

    Attributes:
        name: of the pairs, for titles, such as `STS-B test`.
        pairs: scored pairs; None if no chosen analysis needs them and sentences were given.
        source: of the sentences, for titles.
        sentences: distinct sentences, at least two.
        above: pairs with a gold score above this are positives.
    """

    name: str
    pairs: Pairs | None
    source: str
    sentences: list[str]
    above: float

    @property
    def paired(self) -> list[str]:
        return distinct(self.pairs.left + self.pairs.right)

    def read_by(self, analysis: Analysis) -> str:
        """The data of an analysis, for titles."""
        return self.name if analysis.needs_pairs else self.source


@dataclass(frozen=True)
class Analysis:
    """One analysis.

    Attributes:
        about: one line of help.
        measure: encoder and material -> JSON-serialisable result.
        headlines: key of the result -> (name in the table, format).
        needs_pairs: needs scored pairs; otherwise sentences are enough.
    """

    about: str
    measure: Callable[[Encoder, Material], dict[str, Any]]
    headlines: dict[str, tuple[str, str]]
    needs_pairs: bool = False

    def lines(self, results: Sequence[dict[str, Any] | None]) -> Iterator[tuple[str, list[str]]]:
        """The title of each headline, and one cell per result."""
        for key, (title, form) in self.headlines.items():
            values = [result and result[key] for result in results]
            yield title, ["none" if value is None else format(value, form) for value in values]


def distinct(sentences: Sequence[str]) -> list[str]:
    """Every sentence once, in the order of first appearance."""
    return list(dict.fromkeys(sentences))


class CachedEncoder:
    """An encoder that caches its vectors, so that each sentence is encoded once for all analyses."""

    def __init__(self, encode: Encoder) -> None:
        self._encode = encode
        self._vectors: dict[str, np.ndarray] = {}

    def __call__(self, sentences: list[str]) -> np.ndarray:
        new = [sentence for sentence in distinct(sentences) if sentence not in self._vectors]
        if new:
            self._vectors.update(zip(new, self._encode(new), strict=True))
        return np.stack([self._vectors[sentence] for sentence in sentences])


def read_sentences(path: str, least: int) -> list[str]:
    """The distinct sentences of a text file, one per line; white space is normalised, blank lines are skipped.

    Raises:
        BadInput: the file cannot be read, is JSON or a table, or has fewer than `least` distinct sentences.
    """
    lines = read_lines(Path(path))
    sentences = distinct([sentence for line in lines if (sentence := tidy(line))])
    tables = sum("\t" in line.strip() for line in lines) > len(lines) / 2
    if len(sentences) < least or tables or (sentences[0].startswith("{") and sentences[0].endswith("}")):
        raise BadInput(f"{path}: give at least {least} distinct sentences, one per line; convert JSON and tables")
    return sentences


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
        raise BadInput(f"{material.name} has no pair with a gold score above {material.above:g}")
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
