"""Cosine by gold score, length bias and neighbours, on data made so that the answer is known."""

import numpy as np
import pytest

from eval.analyse import pairs as scored
from eval.analyse import sentences as unscored
from eval.analyse.analysis import Material, Subject
from eval.sts import Pairs


def test_bins_of_gold_scores_and_their_quartiles():
    generator = np.random.default_rng(0)
    scores = np.concatenate([generator.uniform(0, 3, 200), [0.0, 1.0, 3.0 - 1e-9, 4.0, 5.0]])
    cosines = generator.uniform(-1, 1, len(scores))
    found = scored.by_gold(cosines, scores)
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

    pairs = Pairs(["0", "0", "0"], ["0.1", "0.5", "1.2"], [5.0, 2.5, 0.0])
    found = scored.measure_by_gold(Subject(encode, None), Material("toy", pairs, "toy", [], [], 4.0))
    assert found["gap"] == pytest.approx(np.cos(0.1) - np.cos(1.2))
    assert (found["spearman"], found["pairs"]) == (pytest.approx(100), 3)
    without = Pairs(pairs.left[:2], pairs.right[:2], pairs.gold[:2])
    assert scored.measure_by_gold(Subject(encode, None), Material("toy", without, "toy", [], [], 4.0))["gap"] is None


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
    found = unscored.measure_length_bias(Subject(encode, None), Material("toy", None, "toy", words, [], 4.0))
    assert found["spearman"] == pytest.approx(expected, abs=tolerance)
    assert (found["pairs"], found["sentences"]) == (unscored.PAIRS, 30)


def test_bins_of_length_differences():
    differences = np.array([0, 1, 2, 3, 4, 4, 8, 9, 16, 17, 400])
    cosines = np.linspace(0, 1, len(differences))
    found = unscored.by_difference(cosines, differences)
    assert [(b["from"], b["to"], b["pairs"]) for b in found] == [
        (0, 0, 1), (1, 1, 1), (2, 2, 1), (3, 4, 3), (5, 8, 1), (9, 16, 2), (17, None, 2)
    ]  # fmt: skip
    assert [b["mean"] for b in found] == pytest.approx([0, 0.1, 0.2, 0.4, 0.6, 0.75, 0.95])
    assert [b["mean"] for b in unscored.by_difference(cosines[:1], differences[:1])] == [0, *[None] * 6]


def test_random_pairs_are_different_sentences_all_equally_likely_and_the_same_each_time():
    first, second = unscored.draw_pairs(5, 40_000)
    assert (first != second).all()
    counts = np.bincount(first * 5 + second, minlength=25).reshape(5, 5)
    assert counts.diagonal().sum() == 0
    assert abs(counts[~np.eye(5, dtype=bool)] / 2000 - 1).max() < 0.1
    assert np.array_equal(unscored.draw_pairs(5, 40_000), (first, second))
    vectors = np.random.default_rng(0).normal(size=(5, 3))
    cosines = unscored.pair_cosines(vectors, first[:70], second[:70])
    for cosine, i, j in zip(cosines, first, second, strict=False):
        a, b = vectors[i], vectors[j]
        assert cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_neighbours_equal_a_sort_without_the_sentence_itself():
    generator = np.random.default_rng(0)
    vectors = generator.integers(-1, 2, size=(60, 3)).astype(float)  # few values: many ties, some zero rows
    sentences = [f"s{i}" for i in range(60)]
    queries, asked = ["s7", "elsewhere", "s59"], vectors[[7, 7, 59]]
    found = unscored.nearest(queries, asked, sentences, vectors, top=9)
    for query, vector, nearest in zip(queries, asked, found, strict=True):
        every = []
        for i, row in enumerate(vectors):
            norms = np.linalg.norm(vector) * np.linalg.norm(row)
            every.append((-round(float(vector @ row / norms), 9) if norms else 0.0, i))
        expected = [(i, -negative) for negative, i in sorted(every) if sentences[i] != query][:9]
        assert sorted(round(c, 6) for _, c in nearest) == sorted(round(c, 6) for _, c in expected)
        assert all(sentences[i] != query for i, _ in nearest)
    assert 7 in [i for i, _ in found[1]], "another sentence with the same vector is a neighbour"


def test_of_equally_near_sentences_the_earlier_stands_first():
    vectors = np.array([[0.0, 1], [1, 0], [0, 1], [1, 0], [1, 0], [1, 0]])
    found = unscored.nearest(["q"], vectors[1:2], list("abcdef"), vectors, top=3)
    assert found == [[(1, 1.0), (3, 1.0), (4, 1.0)]]
    few = unscored.nearest(["a"], vectors[:1], ["a", "b"], vectors[:2], top=5)
    assert few == [[(1, 0.0)]], "fewer where there are no more"
