"""The analyses of pairs and of sentences against loops, closed forms and known answers."""

import math

import numpy as np
import pytest
import torch

import models.contrast
from common.errors import BadInput
from eval.analyse import geometry
from eval.analyse.analysis import Material, Subject
from eval.encode import unit
from eval.sts import Pairs
from tests.eval.letters import Letters


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


encode = Letters()


def material(gold, above=4.0):
    toys = Pairs(["a", "a to", "a"], ["at", "e", "a to"], gold)
    return Material("toy", toys, "toy", ["a", "a to", "at", "e"], ["a"], above)


def test_positives_are_above_the_score_and_sentences_count_once():
    found = geometry.measure_alignment(Subject(encode, None), material([4.0, 4.2, 5.0]))
    assert (found["positives"], found["sentences"], found["above"]) == (2, 4, 4.0), "4 itself is no positive"
    assert found["alignment"] == pytest.approx(geometry.alignment(encode(["a to", "a"]), encode(["e", "a to"])))
    assert found["uniformity"] == pytest.approx(geometry.uniformity(encode(["a", "a to", "at", "e"])))
    with pytest.raises(BadInput, match=r"toy has no pair with a gold score above 4\.5; lower --above"):
        geometry.measure_alignment(Subject(encode, None), material([1.0, 2.0, 4.5], above=4.5))


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
    found = geometry.measure_by_gold(Subject(encode, None), Material("toy", scored, "toy", [], [], 4.0))
    assert found["gap"] == pytest.approx(np.cos(0.1) - np.cos(1.2))
    assert (found["spearman"], found["pairs"]) == (pytest.approx(100), 3)
    without = Pairs(scored.left[:2], scored.right[:2], scored.gold[:2])
    assert geometry.measure_by_gold(Subject(encode, None), Material("toy", without, "toy", [], [], 4.0))["gap"] is None


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


def sentences_of(lengths):
    return [" ".join(["w"] * n) for n in lengths]


def biased(sentences):
    """The angle is the length: the more the lengths differ, the smaller the cosine."""
    return on_a_circle([len(s.split()) / 40 for s in sentences])


def unbiased(sentences):
    generator = np.random.default_rng(1)
    return generator.normal(size=(len(sentences), 8))


# Equal length differences have cosines that differ in the last bit; 435 pairs do not tell zero from a few hundredths.
@pytest.mark.parametrize(("encode", "expected", "tolerance"), [(biased, -100, 0.2), (unbiased, 0, 12)])
def test_length_bias_is_found_where_it_is(encode, expected, tolerance):
    words = sentences_of(range(1, 31))
    found = geometry.measure_length_bias(Subject(encode, None), Material("toy", None, "toy", words, [], 4.0))
    assert found["spearman"] == pytest.approx(expected, abs=tolerance)
    assert (found["pairs"], found["sentences"]) == (geometry.PAIRS, 30)


def test_bins_of_length_differences():
    differences = np.array([0, 1, 2, 3, 4, 4, 8, 9, 16, 17, 400])
    cosines = np.linspace(0, 1, len(differences))
    found = geometry.by_difference(cosines, differences)
    assert [(b["from"], b["to"], b["pairs"]) for b in found] == [
        (0, 0, 1), (1, 1, 1), (2, 2, 1), (3, 4, 3), (5, 8, 1), (9, 16, 2), (17, None, 2)
    ]  # fmt: skip
    assert [b["mean"] for b in found] == pytest.approx([0, 0.1, 0.2, 0.4, 0.6, 0.75, 0.95])
    assert [b["mean"] for b in geometry.by_difference(cosines[:1], differences[:1])] == [0, *[None] * 6]


def test_random_pairs_are_different_sentences_all_equally_likely_and_the_same_each_time():
    first, second = geometry.draw_pairs(5, 40_000)
    assert (first != second).all()
    counts = np.bincount(first * 5 + second, minlength=25).reshape(5, 5)
    assert counts.diagonal().sum() == 0
    assert abs(counts[~np.eye(5, dtype=bool)] / 2000 - 1).max() < 0.1
    assert np.array_equal(geometry.draw_pairs(5, 40_000), (first, second))
    vectors = np.random.default_rng(0).normal(size=(5, 3))
    cosines = geometry.pair_cosines(vectors, first[:70], second[:70])
    for cosine, i, j in zip(cosines, first, second, strict=False):
        a, b = vectors[i], vectors[j]
        assert cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_neighbours_equal_a_sort_without_the_sentence_itself():
    generator = np.random.default_rng(0)
    vectors = generator.integers(-1, 2, size=(60, 3)).astype(float)  # few values: many ties, some zero rows
    names = [f"s{i}" for i in range(60)]
    queries, asked = ["s7", "elsewhere", "s59"], vectors[[7, 7, 59]]
    found = geometry.nearest(queries, asked, names, vectors, top=9)
    for query, vector, nearest in zip(queries, asked, found, strict=True):
        every = []
        for i, row in enumerate(vectors):
            norms = np.linalg.norm(vector) * np.linalg.norm(row)
            every.append((-round(float(vector @ row / norms), 9) if norms else 0.0, i))
        expected = [(i, -negative) for negative, i in sorted(every) if names[i] != query][:9]
        assert sorted(round(c, 6) for _, c in nearest) == sorted(round(c, 6) for _, c in expected)
        assert all(names[i] != query for i, _ in nearest)
    assert 7 in [i for i, _ in found[1]], "another sentence with the same vector is a neighbour"


def test_of_equally_near_sentences_the_earlier_stands_first():
    vectors = np.array([[0.0, 1], [1, 0], [0, 1], [1, 0], [1, 0], [1, 0]])
    found = geometry.nearest(["q"], vectors[1:2], list("abcdef"), vectors, top=3)
    assert found == [[(1, 1.0), (3, 1.0), (4, 1.0)]]
    few = geometry.nearest(["a"], vectors[:1], ["a", "b"], vectors[:2], top=5)
    assert few == [[(1, 0.0)]], "fewer where there are no more"
