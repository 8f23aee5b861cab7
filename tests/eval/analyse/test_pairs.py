"""Alignment, uniformity and the cosine by gold score against loops, closed forms and known answers."""

import math

import numpy as np
import pytest
import torch

import models.contrast
from common.errors import BadInput
from eval.analyse import pairs
from eval.analyse.analysis import Material, Subject
from eval.sts import Pairs


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(1.0, 2.0, size=(40, 6)).astype(np.float32)


def squared(a, b):
    """The squared distance of two vectors on the unit sphere."""
    one, other = ([float(x) / math.hypot(*row) for x in row] for row in (a, b))
    return sum((x - y) ** 2 for x, y in zip(one, other, strict=True))


def test_alignment_is_the_mean_squared_distance(vectors):
    left, right = vectors[:20], vectors[20:]
    slow = sum(squared(a, b) for a, b in zip(left, right, strict=True)) / 20
    assert pairs.alignment(left, right) == pytest.approx(slow, abs=1e-12)
    assert pairs.alignment(left, 3 * left) == pytest.approx(0, abs=1e-12)
    assert pairs.alignment(left, -left) == pytest.approx(4, abs=1e-12)


@pytest.mark.parametrize("rows", [1, 7, 1024])
def test_uniformity_is_over_pairs_of_different_rows(vectors, rows, monkeypatch):
    monkeypatch.setattr(pairs, "_ROWS", rows)
    terms = [math.exp(-2 * squared(a, b)) for i, a in enumerate(vectors) for b in vectors[:i]]
    assert pairs.uniformity(vectors) == pytest.approx(math.log(sum(terms) / len(terms)), abs=1e-12)
    assert pairs.uniformity(np.ones((5, 3))) == pytest.approx(0, abs=1e-12)
    assert pairs.uniformity(np.array([[1.0, 0], [-1, 0]])) == pytest.approx(-8, abs=1e-12)


def test_training_logs_the_same_figures(vectors):
    tensor = torch.from_numpy(vectors)
    assert pairs.uniformity(vectors) == pytest.approx(models.contrast.uniformity(tensor).item(), abs=1e-5)


def encode(sentences):
    return np.array([[len(s), s.count("a"), 1.0] for s in sentences], dtype=np.float32)


def material(gold, above=4.0):
    toys = Pairs(["a", "aa b", "a"], ["ab", "c", "aa b"], gold)
    return Material("toy", toys, "toy", ["a", "aa b", "ab", "c"], ["a"], above)


def test_positives_are_above_the_score_and_sentences_count_once():
    found = pairs.measure_alignment(Subject(encode, None), material([4.0, 4.2, 5.0]))
    assert (found["positives"], found["sentences"], found["above"]) == (2, 4, 4.0), "4 itself is no positive"
    assert found["alignment"] == pytest.approx(pairs.alignment(encode(["aa b", "a"]), encode(["c", "aa b"])))
    assert found["uniformity"] == pytest.approx(pairs.uniformity(encode(["a", "aa b", "ab", "c"])))
    with pytest.raises(BadInput, match=r"toy has no pair with a gold score above 4\.5; give a lower --above"):
        pairs.measure_alignment(Subject(encode, None), material([1.0, 2.0, 4.5], above=4.5))


def test_bins_of_gold_scores_and_their_quartiles():
    generator = np.random.default_rng(0)
    scores = np.concatenate([generator.uniform(0, 3, 200), [0.0, 1.0, 3.0 - 1e-9, 4.0, 5.0]])
    cosines = generator.uniform(-1, 1, len(scores))
    found = pairs.by_gold(cosines, scores)
    assert [(b["from"], b["to"]) for b in found] == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    assert sum(b["pairs"] for b in found) == len(scores)
    for b in found[:3]:
        inside = sorted(c for c, s in zip(cosines, scores, strict=True) if b["from"] <= s < b["to"])
        assert b["pairs"] == len(inside)
        assert b["mean"] == pytest.approx(sum(inside) / len(inside))
        for share, name in ((0.25, "lower_quartile"), (0.5, "median"), (0.75, "upper_quartile")):
            place = share * (len(inside) - 1)
            low, rest = int(place), place % 1
            assert b[name] == pytest.approx(inside[low] + rest * (inside[min(low + 1, len(inside) - 1)] - inside[low]))
    assert found[3] == {"from": 3, "to": 4, "pairs": 0, "mean": None, "lower_quartile": None, "median": None,
                        "upper_quartile": None}  # fmt: skip
    assert found[4]["pairs"] == 2 and found[4]["mean"] == pytest.approx(cosines[-2:].mean()), "4 and 5 share a bin"


def on_a_circle(angles):
    return np.array([np.cos(angles), np.sin(angles)]).T


def test_the_gap_needs_both_ends():
    def encode(sentences):
        return on_a_circle([float(s) for s in sentences])

    scored = Pairs(["0", "0", "0"], ["0.1", "0.5", "1.2"], [5.0, 2.5, 0.0])
    found = pairs.measure_by_gold(Subject(encode, None), Material("toy", scored, "toy", [], [], 4.0))
    assert found["gap"] == pytest.approx(np.cos(0.1) - np.cos(1.2))
    assert (found["spearman"], found["pairs"]) == (pytest.approx(100), 3)
    without = Pairs(scored.left[:2], scored.right[:2], scored.gold[:2])
    assert pairs.measure_by_gold(Subject(encode, None), Material("toy", without, "toy", [], [], 4.0))["gap"] is None
