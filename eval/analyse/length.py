"""Length bias: are sentences close because they are equally long?

Source: ESimCSE (arXiv 2109.04380) shows that SimCSE's positives are always equally long and that the model learns it.
Lengths are in words at white space, not in tokens, so that models with different tokenizers can be compared. Texts of
one kind are often of one length (captions short, news long): a little correlation is the corpus, not the model; compare
models, not a model with zero.
"""

from __future__ import annotations

import numpy as np

from eval.analyse.analysis import Analysis, Material, Subject, unit
from eval.sts.tasks import correlation

PAIRS = 50_000
LOWEST = (0, 1, 2, 3, 5, 9, 17)  # the smallest length difference of each bin
_PARTS = 50  # so that drawn rows of wide vectors need no gigabytes


def draw_pairs(count: int, pairs: int = PAIRS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random pairs of different numbers below `count`, drawn with replacement, (pairs,) twice; the same each time."""
    generator = np.random.default_rng(seed)
    first = generator.integers(count, size=pairs)
    return first, (first + generator.integers(1, count, size=pairs)) % count


def pair_cosines(vectors: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Cosines of the rows with these numbers, (N, D), (P,), (P,) -> (P,)."""
    rows = unit(vectors)
    parts = zip(np.array_split(first, _PARTS), np.array_split(second, _PARTS), strict=True)
    return np.concatenate([np.einsum("pd,pd->p", rows[i], rows[j]) for i, j in parts])


def by_difference(cosines: np.ndarray, differences: np.ndarray) -> list[dict]:
    """Mean cosine per bin of length differences in words, (P,) and (P,) -> one dict a bin; None where it is empty."""
    found = []
    for low, above in zip(LOWEST, [*LOWEST[1:], None], strict=True):
        inside = cosines[(differences >= low) & (differences < (np.inf if above is None else above))]
        last = None if above is None else above - 1
        mean = float(inside.mean()) if len(inside) else None
        found.append({"from": low, "to": last, "pairs": len(inside), "mean": mean})
    return found


def measure(subject: Subject, material: Material) -> dict:
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


ANALYSIS = Analysis(
    about="correlation of length difference and cosine over random pairs (ESimCSE)",
    measure=measure,
    headlines={"spearman": ("Spearman x 100 of length difference and cosine", ".2f")},
)
