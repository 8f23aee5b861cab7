"""Alignment, uniformity and anisotropy against loops, closed forms and the training code's own functions."""

import math

import numpy as np
import pytest
import torch

import eval.analyse.pairs
import models.contrast
from common.errors import BadInput
from eval.analyse import pairs, sentences
from eval.analyse.analysis import CachedEncoder, Material, Subject
from eval.encode import unit
from eval.sts import Pairs


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(1.0, 2.0, size=(40, 6)).astype(np.float32)


def length_one(row):
    norm = math.sqrt(sum(float(x) ** 2 for x in row))
    return [float(x) / norm for x in row]


def squared(a, b):
    return sum((x - y) ** 2 for x, y in zip(length_one(a), length_one(b), strict=True))


def test_alignment_is_the_mean_squared_distance(vectors):
    left, right = vectors[:20], vectors[20:]
    slow = sum(squared(a, b) for a, b in zip(left, right, strict=True)) / 20
    assert pairs.alignment(left, right) == pytest.approx(slow, abs=1e-12)
    assert pairs.alignment(left, 3 * left) == pytest.approx(0, abs=1e-12)
    assert pairs.alignment(left, -left) == pytest.approx(4, abs=1e-12)


@pytest.mark.parametrize("rows", [1, 7, 1024])
def test_uniformity_is_over_pairs_of_different_rows(vectors, rows, monkeypatch):
    monkeypatch.setattr(eval.analyse.pairs, "_ROWS", rows)
    terms = [math.exp(-2 * squared(a, b)) for i, a in enumerate(vectors) for b in vectors[:i]]
    assert pairs.uniformity(vectors) == pytest.approx(math.log(sum(terms) / len(terms)), abs=1e-12)
    assert pairs.uniformity(np.ones((5, 3))) == pytest.approx(0, abs=1e-12)
    assert pairs.uniformity(np.array([[1.0, 0], [-1, 0]])) == pytest.approx(-8, abs=1e-12)


def test_training_logs_the_same_figures(vectors):
    tensor = torch.from_numpy(vectors)
    assert pairs.uniformity(vectors) == pytest.approx(models.contrast.uniformity(tensor).item(), abs=1e-5)
    assert sentences.mean_cosine(vectors) == pytest.approx(models.contrast.mean_cosine(tensor).item(), abs=1e-5)


def test_the_mean_cosine_of_random_pairs_is_exact(vectors):
    rows = [length_one(row) for row in vectors]
    slow = [sum(x * y for x, y in zip(a, b, strict=True)) for i, a in enumerate(rows) for b in rows[:i]]
    assert sentences.mean_cosine(vectors) == pytest.approx(sum(slow) / len(slow), abs=1e-12)
    assert sentences.mean_cosine(np.ones((5, 3))) == pytest.approx(1, abs=1e-12)
    with_zero = np.array([[0.0, 0], [1, 0], [1, 0]])
    assert sentences.mean_cosine(with_zero) == pytest.approx(1 / 3, abs=1e-12), "the cosine with a zero vector is 0"


def test_a_known_spectrum():
    """Plus and minus every axis: centred already, all directions alike. On one axis only: rank one."""
    axes = np.concatenate([np.eye(4), -np.eye(4)])
    assert sentences.spectrum(axes) == pytest.approx(np.ones(4))
    assert sentences.effective_rank(sentences.spectrum(axes)) == pytest.approx(4)
    line = np.concatenate([axes[:1]] * 3 + [axes[4:5]] * 2)
    assert sentences.spectrum(line) == pytest.approx([1, 0, 0, 0], abs=1e-12)
    assert sentences.effective_rank(np.array([1.0, 0, 0])) == pytest.approx(1)
    shares = (4 / 7, 2 / 7, 1 / 7)
    entropy = -sum(p * math.log(p) for p in shares)
    assert sentences.effective_rank(np.array([1, 0.5, 0.25])) == pytest.approx(math.exp(entropy))


def test_the_spectrum_is_that_of_the_covariance(vectors):
    centred = unit(vectors) - unit(vectors).mean(0)
    expected = np.sqrt(np.linalg.eigvalsh(centred.T @ centred)[::-1])
    assert sentences.spectrum(vectors) == pytest.approx(expected / expected[0], abs=1e-9)
    assert len(sentences.spectrum(vectors[:4])) == 3, "four centred points span three dimensions"


def test_a_collapsed_encoder_has_no_rank():
    same = np.tile(np.random.default_rng(1).normal(size=16).astype(np.float32), (50, 1))
    noisy = same + 1e-9 * np.arange(50)[:, None]
    for vectors in (same, noisy, np.zeros((3, 2))):
        assert sentences.effective_rank(sentences.spectrum(vectors)) == 0.0


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


def test_a_sentence_is_encoded_once_for_all_analyses():
    asked = []

    def watched(sentences):
        asked.append(sentences)
        return encode(sentences)

    remembered = CachedEncoder(watched)
    assert np.array_equal(remembered(["a", "b", "a"]), encode(["a", "b", "a"]))
    assert np.array_equal(remembered(["ccc", "b"]), encode(["ccc", "b"]))
    assert np.array_equal(remembered(["a"]), encode(["a"]))
    assert asked == [["a", "b"], ["ccc"]]
