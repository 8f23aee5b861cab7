import numpy as np
import pytest

from eval.retrieval.search import in_blocks, top_k


def sorted_by_hand(queries, documents, k):
    """Cosines of all pairs, then a full stable sort of each row."""

    def unit(vectors):
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.where(norms > 0, vectors / np.where(norms > 0, norms, 1), 0).astype(np.float32)

    scores = unit(queries) @ unit(documents).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), order


def axes(rng, count, width=8):
    """Vectors along one axis or none: every cosine is -1, 0 or 1, so nearly all documents tie."""
    vectors = np.zeros((count, width), dtype=np.float32)
    for vector in vectors[: count - 2]:
        vector[rng.integers(width)] = rng.choice([-2.0, 0.5, 4.0])
    return vectors


@pytest.mark.parametrize("k", [1, 7, 40, 100])
@pytest.mark.parametrize("size", [1, 13, 40, 1000])
def test_ties_go_to_the_lower_index_in_every_division_and_order(k, size):
    rng = np.random.default_rng(3)
    queries, documents = axes(rng, 9), axes(rng, 40)
    expected_scores, expected = sorted_by_hand(queries, documents, k)
    assert len(np.unique(expected_scores)) <= 3 and expected.shape == (9, min(k, 40))
    for largest in [(1, 1), (4, 6), (9, 40)]:
        scores, indices = top_k(
            queries, reversed([*in_blocks(documents, size)]), k, largest=largest
        )
        assert indices.tolist() == expected.tolist()
        assert scores.tolist() == expected_scores.tolist()
        assert (scores.dtype, indices.dtype) == (np.float32, np.int64)


def test_cosines_of_both_signs_are_in_order_and_lengths_do_not_count():
    rng = np.random.default_rng(5)
    queries, documents = (
        rng.normal(size=(6, 16)),
        rng.normal(size=(300, 16)) * rng.uniform(0.1, 9, size=(300, 1)),
    )
    expected_scores, expected = sorted_by_hand(queries, documents, 300)
    assert expected_scores[0, 0] > 0.5 and expected_scores[0, -1] < -0.5
    scores, indices = top_k(queries, in_blocks(documents, 37), 300, largest=(4, 50))
    assert indices.tolist() == expected.tolist()
    assert scores == pytest.approx(expected_scores, abs=1e-6)


def test_without_documents_or_queries_there_is_nothing():
    assert top_k(np.ones((3, 4)), [], 5)[1].shape == (3, 0)
    assert top_k(np.ones((0, 4)), [(0, np.ones((2, 4)))], 5)[1].size == 0
