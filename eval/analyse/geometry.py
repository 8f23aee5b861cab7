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

Length bias: are sentences close because they have equal length? Source: ESimCSE (arXiv 2109.04380) shows that SimCSE's
positives always have equal length and that the model learns it. Length is in white-space words, not tokens, to compare
models with different tokenizers. Texts of one kind often have similar lengths (captions short, news long), so a small
correlation comes from the corpus: compare models with each other, not with zero.

Nearest neighbours of given sentences, to read.
"""

from itertools import pairwise

import numpy as np
from scipy.stats import entropy

from common.errors import BadInput
from eval.analyse.analysis import Analysis, Material, Subject
from eval.encode import unit
from eval.sts import correlation, similarities

ABOVE = 4.0  # pairs with a higher gold score are positives
EDGES = (0, 1, 2, 3, 4, 5)  # bins of gold scores
_ROWS = 1024  # of the distance matrix at a time
PAIRS = 50_000  # random pairs for the length bias
LOWEST = (0, 1, 2, 3, 5, 9, 17)  # smallest length difference of each bin
_PARTS = 50  # to bound memory
TOP = 5  # neighbours


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


def measure_alignment(subject: Subject, material: Material) -> dict:
    """Alignment, uniformity and the numbers of pairs and sentences; BadInput without a positive pair."""
    pairs = material.pairs
    positive = np.flatnonzero(np.array(pairs.gold) > material.above)
    if len(positive) == 0:
        raise BadInput(f"{material.name} has no pair with a gold score above {material.above:g}; lower --above")
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


def measure_anisotropy(subject: Subject, material: Material) -> dict:
    vectors = subject.encode(material.sentences)
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


def draw_pairs(count: int, pairs: int = PAIRS) -> tuple[np.ndarray, np.ndarray]:
    """Random pairs of different indices below `count`, with replacement, two (pairs,) arrays; the same every time."""
    generator = np.random.default_rng(0)
    first = generator.integers(count, size=pairs)
    return first, (first + generator.integers(1, count, size=pairs)) % count


def pair_cosines(vectors: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Cosines of rows `first` and `second`, (N, D), (P,), (P,) -> (P,)."""
    rows = unit(vectors)
    parts = zip(np.array_split(first, _PARTS), np.array_split(second, _PARTS), strict=True)
    return np.concatenate([np.einsum("pd,pd->p", rows[i], rows[j]) for i, j in parts])


def by_difference(cosines: np.ndarray, differences: np.ndarray) -> list[dict]:
    """Mean cosine by length difference in words, (P,) and (P,) -> one dict per bin; None for an empty bin."""
    results = []
    for low, above in zip(LOWEST, [*LOWEST[1:], None], strict=True):
        inside = cosines[(differences >= low) & (differences < (np.inf if above is None else above))]
        last = None if above is None else above - 1
        mean = float(inside.mean()) if len(inside) else None
        results.append({"from": low, "to": last, "pairs": len(inside), "mean": mean})
    return results


def measure_length_bias(subject: Subject, material: Material) -> dict:
    """Spearman x 100 of length difference and cosine (negative: equal lengths are closer), and the bins."""
    first, second = draw_pairs(len(material.sentences))
    lengths = np.array([len(sentence.split()) for sentence in material.sentences])
    differences = np.abs(lengths[first] - lengths[second])
    cosines = pair_cosines(subject.encode(material.sentences), first, second)
    return {
        "spearman": correlation(cosines, differences),
        "pairs": len(cosines),
        "sentences": len(lengths),
        "bins": by_difference(cosines, differences),
    }


LENGTH_BIAS = Analysis(
    about="correlation of length difference and cosine over random pairs (ESimCSE)",
    measure=measure_length_bias,
    headlines={"spearman": ("Spearman x 100 of length difference and cosine", ".2f")},
)


def nearest(
    queries: list[str], query_vectors: np.ndarray, sentences: list[str], vectors: np.ndarray, top: int = TOP
) -> list[list[tuple[int, float]]]:
    """For each of Q queries, the indices of its nearest sentences and their cosines, nearest first, at most `top`.

    A sentence is not its own neighbour. Ties keep the order of the sentences. Vectors are (Q, D) and (N, D); the N
    sentences are distinct.
    """
    cosines = unit(query_vectors) @ unit(vectors).T
    results = []
    for query, row in zip(queries, cosines, strict=True):
        order = np.argsort(-row, kind="stable")[: top + 1]
        others = [int(i) for i in order if sentences[i] != query]
        results.append([(i, float(row[i])) for i in others[:top]])
    return results


def measure_neighbours(subject: Subject, material: Material) -> dict:
    """Every query with its neighbours, and the mean cosine of the nearest one."""
    queries, sentences = material.queries, material.sentences
    results = nearest(queries, subject.encode(queries), sentences, subject.encode(sentences))
    return {
        "mean_cosine_of_nearest": float(np.mean([neighbours[0][1] for neighbours in results])),
        "sentences": len(sentences),
        "queries": [
            {"query": query, "neighbours": [{"sentence": sentences[i], "cosine": cosine} for i, cosine in neighbours]}
            for query, neighbours in zip(queries, results, strict=True)
        ],
    }


NEIGHBOURS = Analysis(
    about=f"the {TOP} nearest sentences of each query, with their cosines",
    measure=measure_neighbours,
    headlines={"mean_cosine_of_nearest": ("mean cosine of the nearest neighbour", ".3f")},
)
