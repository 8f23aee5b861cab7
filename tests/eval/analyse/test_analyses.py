"""The analyses of pairs and of sentences against loops, closed forms and known answers."""

import math

import numpy as np
import pytest
import torch

import models.contrast
from eval.analyse import geometry
from eval.encode import unit
from eval.sts import Pairs
from tests.refusals import refused


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
    assert geometry.alignment(left, right) == pytest.approx(slow, abs=1e-12)
    assert geometry.alignment(left, 3 * left) == pytest.approx(0, abs=1e-12)
    assert geometry.alignment(left, -left) == pytest.approx(4, abs=1e-12)


@pytest.mark.parametrize("rows", [1, 7, 1024])
def test_uniformity_is_over_pairs_of_different_rows(vectors, rows, monkeypatch):
    monkeypatch.setattr(geometry, "_ROWS", rows)
    terms = [math.exp(-2 * squared(a, b)) for i, a in enumerate(vectors) for b in vectors[:i]]
    assert geometry.uniformity(vectors) == pytest.approx(math.log(sum(terms) / len(terms)), abs=1e-12)
    assert geometry.uniformity(np.ones((5, 3))) == pytest.approx(0, abs=1e-12)
    assert geometry.uniformity(np.array([[1.0, 0], [-1, 0]])) == pytest.approx(-8, abs=1e-12)


def test_training_logs_the_same_figures(vectors):
    tensor = torch.from_numpy(vectors)
    assert geometry.uniformity(vectors) == pytest.approx(models.contrast.uniformity(tensor).item(), abs=1e-5)
    assert geometry.mean_cosine(vectors) == pytest.approx(models.contrast.mean_cosine(tensor).item(), abs=1e-5)


def on_a_circle(*angles):
    """Texts by their angle, and pairs of the first with each of the others."""
    vectors = {str(angle): np.array([np.cos(angle), np.sin(angle)]) for angle in angles}
    first, *others = vectors
    return vectors, lambda gold: Pairs([first] * len(gold), others[: len(gold)], gold)


def test_positives_are_above_the_score_and_sentences_count_once():
    vectors, scored = on_a_circle(0, 0.1, 0.5, 1.2)
    sentences = list(vectors)
    found = geometry.measure(vectors, scored([4.0, 4.2, 5.0]), sentences)["alignment_uniformity"]
    assert (found["positives"], found["sentences"]) == (2, 4), "4 itself is no positive"
    left, *right = vectors["0"], vectors["0.5"], vectors["1.2"]
    assert found["alignment"] == pytest.approx(geometry.alignment(np.stack([left, left]), np.stack(right)))
    assert found["uniformity"] == pytest.approx(geometry.uniformity(np.stack([*vectors.values()])))
    assert list(geometry.measure(vectors, scored([1.0, 2.0, 4.0]), sentences)) == ["anisotropy", "cosine_by_gold"]


def test_the_gap_needs_both_ends():
    vectors, scored = on_a_circle(0, 0.1, 0.5, 1.2)
    found = geometry.measure(vectors, scored([5.0, 2.5, 0.0]), list(vectors))["cosine_by_gold"]
    assert found["gap"] == pytest.approx(np.cos(0.1) - np.cos(1.2))
    assert (found["spearman"], found["pairs"]) == (pytest.approx(100), 3)
    assert geometry.measure(vectors, scored([5.0, 2.5]), list(vectors))["cosine_by_gold"]["gap"] is None


@pytest.mark.parametrize("content", ["", "the same\n\nthe  same\n"])
def test_a_single_sentence_is_not_enough(tmp_path, content):
    (tmp_path / "sentences").write_text(content)
    assert "at least two distinct sentences" in refused(geometry.read_sentences, str(tmp_path / "sentences"))


def test_bins_of_gold_scores_and_their_quartiles():
    generator = np.random.default_rng(0)
    scores = np.concatenate([generator.uniform(0, 3, 200), [0.0, 1.0, 3.0 - 1e-9, 4.0, 5.0]])
    cosines = generator.uniform(-1, 1, len(scores))
    found = geometry.by_gold(cosines, scores)
    assert [(b["from"], b["to"]) for b in found] == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
    assert sum(b["pairs"] for b in found) == len(scores)
    for b in found[:3]:
        inside = sorted(c for c, s in zip(cosines, scores, strict=True) if b["from"] <= s < b["to"])
        assert b["pairs"] == len(inside)
        assert b["mean"] == pytest.approx(sum(inside) / len(inside))
        for share, name in ((0.25, "lower_quartile"), (0.5, "median"), (0.75, "upper_quartile")):
            rank = share * (len(inside) - 1)
            low, rest = int(rank), rank % 1
            assert b[name] == pytest.approx(inside[low] + rest * (inside[min(low + 1, len(inside) - 1)] - inside[low]))
    assert found[3] == {"from": 3, "to": 4, "pairs": 0} | dict.fromkeys(list(found[3])[3:]), "an empty bin has no value"
    assert found[4]["pairs"] == 2 and found[4]["mean"] == pytest.approx(cosines[-2:].mean()), "4 and 5 share a bin"


def test_the_mean_cosine_of_random_pairs_is_exact(vectors):
    rows = [[float(x) / math.hypot(*row) for x in row] for row in vectors]
    slow = [sum(x * y for x, y in zip(a, b, strict=True)) for i, a in enumerate(rows) for b in rows[:i]]
    assert geometry.mean_cosine(vectors) == pytest.approx(sum(slow) / len(slow), abs=1e-12)
    assert geometry.mean_cosine(np.ones((5, 3))) == pytest.approx(1, abs=1e-12)
    with_zero = np.array([[0.0, 0], [1, 0], [1, 0]])
    assert geometry.mean_cosine(with_zero) == pytest.approx(1 / 3, abs=1e-12), "the cosine with a zero vector is 0"


def test_a_known_spectrum():
    """Plus and minus every axis: centred already, all directions alike. On one axis only: rank one."""
    axes = np.concatenate([np.eye(4), -np.eye(4)])
    assert geometry.spectrum(axes) == pytest.approx(np.ones(4))
    assert geometry.effective_rank(geometry.spectrum(axes)) == pytest.approx(4)
    line = np.concatenate([axes[:1]] * 3 + [axes[4:5]] * 2)
    assert geometry.spectrum(line) == pytest.approx([1, 0, 0, 0], abs=1e-12)
    assert geometry.effective_rank(np.array([1.0, 0, 0])) == pytest.approx(1)
    shares = (4 / 7, 2 / 7, 1 / 7)
    entropy = -sum(p * math.log(p) for p in shares)
    assert geometry.effective_rank(np.array([1, 0.5, 0.25])) == pytest.approx(math.exp(entropy))


def test_the_spectrum_is_that_of_the_covariance(vectors):
    centred = unit(vectors) - unit(vectors).mean(0)
    expected = np.sqrt(np.linalg.eigvalsh(centred.T @ centred)[::-1])
    assert geometry.spectrum(vectors) == pytest.approx(expected / expected[0], abs=1e-9)
    assert len(geometry.spectrum(vectors[:4])) == 3, "four centred points span three dimensions"


def test_a_collapsed_encoder_has_no_rank():
    same = np.tile(np.random.default_rng(1).normal(size=16).astype(np.float32), (50, 1))
    noisy = same + 1e-9 * np.arange(50)[:, None]
    for vectors in (same, noisy, np.zeros((3, 2))):
        assert geometry.effective_rank(geometry.spectrum(vectors)) == 0.0
