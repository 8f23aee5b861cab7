"""Analyses of unscored sentences: anisotropy, length bias and nearest neighbours.

Anisotropy: do the vectors point everywhere, or into a narrow cone along a few directions? Sources: the mean cosine of
random sentences is Ethayarajh's measure (arXiv 1909.00512); the spectrum is what SimCSE (arXiv 2104.08821, section 5)
argues the contrastive loss flattens; the effective rank is Roy and Vetterli's (2007). All on unit vectors, because the
cosine ignores length.

Length bias: are sentences close because they are equally long? Source: ESimCSE (arXiv 2109.04380) shows that SimCSE's
positives are always equally long and that the model learns it. Lengths are in words at white space, not in tokens, so
that models with different tokenizers can be compared. Texts of one kind are often of one length (captions short, news
long), so a small correlation is due to the corpus: compare models with each other, not with zero.

Nearest neighbours of given sentences, to be read.
"""

from __future__ import annotations

import numpy as np

from eval.analyse.analysis import Analysis, Material, Subject
from eval.encode import unit
from eval.sts import correlation

PAIRS = 50_000  # random ones, for the length bias
LOWEST = (0, 1, 2, 3, 5, 9, 17)  # the smallest length difference of each bin
_PARTS = 50  # to bound memory
TOP = 5  # neighbours


def mean_cosine(vectors: np.ndarray) -> float:
    """Mean cosine of all pairs of different rows, (N, D) -> -1 to 1, exactly, from the sum of the unit vectors.

    |sum_i u_i|^2 holds every pair twice and each row with itself once. A drawn sample of pairs would only be noisier.
    """
    rows = unit(vectors)
    count = len(rows)
    return float((np.square(rows.sum(0)).sum() - np.square(rows).sum()) / (count * (count - 1)))


def spectrum(vectors: np.ndarray) -> np.ndarray:
    """Singular values of the centred unit vectors over the largest, falling, (N, D) -> (min(N - 1, D),).

    All zero where the vectors are equal within float32's precision.
    """
    rows = unit(vectors)
    values = np.linalg.svd(rows - rows.mean(0), compute_uv=False)[: len(rows) - 1]  # centring costs one dimension
    largest = values[0]
    if largest <= np.finfo(np.float32).eps * np.sqrt(len(rows)):
        return np.zeros_like(values)
    return values / largest


def effective_rank(values: np.ndarray) -> float:
    """Exponential of the entropy of singular values that sum to one, (R,) -> 1 to R; 0 where all are zero."""
    positive = values[values > 0]
    if len(positive) == 0:
        return 0.0
    shares = positive / positive.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def measure_anisotropy(subject: Subject, material: Material) -> dict:
    """Mean cosine, effective rank and the spectrum."""
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


def draw_pairs(count: int, pairs: int = PAIRS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random pairs of different indices below `count`, with replacement, (pairs,) twice; a fixed seed."""
    generator = np.random.default_rng(seed)
    first = generator.integers(count, size=pairs)
    return first, (first + generator.integers(1, count, size=pairs)) % count


def pair_cosines(vectors: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Cosines of the rows with these numbers, (N, D), (P,), (P,) -> (P,)."""
    rows = unit(vectors)
    parts = zip(np.array_split(first, _PARTS), np.array_split(second, _PARTS), strict=True)
    return np.concatenate([np.einsum("pd,pd->p", rows[i], rows[j]) for i, j in parts])


def by_difference(cosines: np.ndarray, differences: np.ndarray) -> list[dict]:
    """Mean cosine by length difference in words, (P,) and (P,) -> a dict for each bin; None in an empty one."""
    found = []
    for low, above in zip(LOWEST, [*LOWEST[1:], None], strict=True):
        inside = cosines[(differences >= low) & (differences < (np.inf if above is None else above))]
        last = None if above is None else above - 1
        mean = float(inside.mean()) if len(inside) else None
        found.append({"from": low, "to": last, "pairs": len(inside), "mean": mean})
    return found


def measure_length_bias(subject: Subject, material: Material) -> dict:
    """Spearman x 100 between length difference and cosine (negative: equal lengths are closer), and the bins."""
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
    """For each of Q queries, the numbers of its nearest sentences and their cosines, the nearest first.

    A sentence is not its own neighbour; of equally near ones the earlier stands first; fewer than `top` where there
    are no more. Vectors are (Q, D) and (N, D); the N sentences are distinct.
    """
    cosines = unit(query_vectors) @ unit(vectors).T
    found = []
    for query, row in zip(queries, cosines, strict=True):
        order = np.argsort(-row, kind="stable")[: top + 1]
        others = [int(i) for i in order if sentences[i] != query]
        found.append([(i, float(row[i])) for i in others[:top]])
    return found


def measure_neighbours(subject: Subject, material: Material) -> dict:
    """Every query with its neighbours, and the mean cosine of the nearest one."""
    queries, sentences = material.queries, material.sentences
    found = nearest(queries, subject.encode(queries), sentences, subject.encode(sentences))
    return {
        "mean_cosine_of_nearest": float(np.mean([neighbours[0][1] for neighbours in found])),
        "sentences": len(sentences),
        "queries": [
            {"query": query, "neighbours": [{"sentence": sentences[i], "cosine": cosine} for i, cosine in neighbours]}
            for query, neighbours in zip(queries, found, strict=True)
        ],
    }


NEIGHBOURS = Analysis(
    about=f"the {TOP} nearest sentences of each query, with their cosines",
    measure=measure_neighbours,
    headlines={"mean_cosine_of_nearest": ("mean cosine of the nearest neighbour", ".3f")},
)
