"""Alignment and uniformity: positives should be close, all sentences spread over the sphere; lower is better.

Source: Wang and Isola 2020 (arXiv 2005.10242) with alpha = 2 and t = 2, on STS-B as SimCSE (arXiv 2104.08821,
footnote 3) takes them: positives are the pairs with a gold score higher than 4, uniformity is over all sentences.
SimCSE took train, dev and test together (its issues 52 and 128); here it is one split, `test` unless asked otherwise,
because encoders are trained and chosen on the others. A sentence that comes twice counts once in the uniformity:
its distance of zero to itself says nothing of the encoder.
"""

from __future__ import annotations

import numpy as np

from common.errors import BadInput
from eval.analyse.analysis import Analysis, Material, Subject, unit

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
    return float(np.log((total - count) / (count * (count - 1))))  # each row is at distance 0 of itself


def measure(subject: Subject, material: Material) -> dict:
    """Both numbers and how many pairs and sentences they rest on; BadInput without a positive pair."""
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


ANALYSIS = Analysis(
    about="alignment of positive pairs against uniformity of all sentences (Wang and Isola; SimCSE Figure 3)",
    measure=measure,
    headlines={
        "alignment": ("alignment (lower is better)", ".3f"),
        "uniformity": ("uniformity (lower is better)", ".3f"),
    },
    needs_pairs=True,
)
