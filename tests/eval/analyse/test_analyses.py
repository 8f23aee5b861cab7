"""The analyses of pairs and of sentences against loops, closed forms and known answers."""

import math
import statistics
from itertools import combinations

import numpy as np
import pytest

from eval.analyse import geometry
from eval.analyse.__main__ import measure
from eval.sts import Pairs


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(1.0, 2.0, size=(40, 6)).astype(np.float32)


def squared(a, b):
    """The squared distance of two vectors on the unit sphere."""
    first, second = ([float(x) / math.hypot(*row) for x in row] for row in (a, b))
    return sum((x - y) ** 2 for x, y in zip(first, second, strict=True))


def test_alignment_is_the_mean_squared_distance(vectors):
    left, right = vectors[:20], vectors[20:]
    slow = sum(squared(a, b) for a, b in zip(left, right, strict=True)) / 20
    assert geometry.alignment(left, right) == pytest.approx(slow, abs=1e-12)
    assert geometry.alignment(left, 3 * left) == pytest.approx(0, abs=1e-12)
    assert geometry.alignment(left, -left) == pytest.approx(4, abs=1e-12)


def on_a_circle(*angles):
    """Texts by their angle, and pairs of the first with each of the others."""
    vectors = {str(angle): np.array([np.cos(angle), np.sin(angle)]) for angle in angles}
    first, *others = vectors
    return vectors, lambda gold: Pairs([first] * len(gold), others[: len(gold)], gold)


def test_positives_are_above_the_score_and_sentences_count_once():
    vectors, scored = on_a_circle(0, 0.1, 0.5, 1.2)
    figures = measure(vectors, scored([4.0, 4.2, 5.0]))["alignment_uniformity"]
    assert (figures["positives"], figures["sentences"]) == (2, 4), "4 itself is no positive"
    left, *right = vectors["0"], vectors["0.5"], vectors["1.2"]
    expected = geometry.alignment(np.stack([left, left]), np.stack(right))
    assert figures["alignment"] == pytest.approx(expected)
    terms = [math.exp(-2 * squared(a, b)) for a, b in combinations(vectors.values(), 2)]
    assert figures["uniformity"] == pytest.approx(math.log(np.mean(terms)), abs=1e-12)
    assert list(measure(vectors, scored([1.0, 2.0, 4.0]))) == ["cosine_by_gold"]


def test_the_gap_needs_both_ends():
    vectors, scored = on_a_circle(0, 0.1, 0.5, 1.2)
    figures = measure(vectors, scored([5.0, 2.5, 0.0]))["cosine_by_gold"]
    assert figures["gap"] == pytest.approx(np.cos(0.1) - np.cos(1.2))
    assert (figures["spearman"], figures["pairs"]) == (pytest.approx(100), 3)
    assert measure(vectors, scored([5.0, 2.5]))["cosine_by_gold"]["gap"] is None


def test_bins_of_gold_scores_and_their_quartiles():
    generator = np.random.default_rng(0)
    scores = np.concatenate([generator.uniform(0, 3, 200), [0.0, 1.0, 3.0 - 1e-9, 4.0, 5.0]])
    cosines = generator.uniform(-1, 1, len(scores))
    bins = geometry.by_gold(cosines, scores)
    assert [(b["from"], b["to"]) for b in bins] == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    assert sum(b["pairs"] for b in bins) == len(scores)
    for b in bins[:3]:
        inside = [c for c, s in zip(cosines, scores, strict=True) if b["from"] <= s < b["to"]]
        lower, median, upper = statistics.quantiles(inside, method="inclusive")
        assert (b["pairs"], b["mean"]) == (len(inside), pytest.approx(statistics.mean(inside)))
        quartiles = b["lower_quartile"], b["median"], b["upper_quartile"]
        assert quartiles == pytest.approx((lower, median, upper))
    empty = {"from": 3, "to": 4, "pairs": 0}
    assert bins[3] == empty | dict.fromkeys(bins[3].keys() - empty.keys())
    assert bins[4]["pairs"] == 2, "4 and 5 share a bin"
    assert bins[4]["mean"] == pytest.approx(cosines[-2:].mean())
