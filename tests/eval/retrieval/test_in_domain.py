import numpy as np
import pytest

from eval.retrieval.in_domain import InDomainRetrieval, partner_ranks
from tests.eval.toys import write_stsb

PAIRS, QUERIES = 1379, 97
# Sentences that are that of another row too: of another query, partner or unscored pair, or of its
# own pair.
SAME = {(6, "left"): "left 5", (9, "right"): "right 8", (20, "right"): "left 21"}
SAME |= {(700, "left"): "left 3", (30, "right"): "left 30"}
PLACES = [(i, side) for side in ("left", "right") for i in range(PAIRS)]
CORPUS = [SAME.get((i, side), f"{side} {i}") for i, side in PLACES]


def encode(sentences):
    """The two sentences of a pair lie near each other, some nearer than others."""
    vectors = []
    for text in sentences:
        side, number = text.split()
        shift = np.random.default_rng([int(number), side == "left"]).normal(size=6)
        middle = np.random.default_rng(int(number)).normal(size=6)
        vectors.append(middle + int(number) % 5 / 6 * shift)
    return np.array(vectors, dtype=np.float32)


@pytest.fixture
def data_dir(tmp_path):
    """STS-B test in its published size; the first 97 pairs have score 5.0."""
    scores = ["5.000"] * QUERIES + ["4.800"] * (PAIRS - QUERIES)
    return write_stsb(tmp_path, list(zip(scores, CORPUS[:PAIRS], CORPUS[PAIRS:], strict=True)))


def by_hand():
    """The rank of every query's partner, from a full sort in which equal strings tie."""
    vectors = encode(CORPUS)
    unit = dict(zip(CORPUS, vectors / np.linalg.norm(vectors, axis=1)[:, None], strict=True))
    names, matrix = list(unit), np.array(list(unit.values()), dtype=np.float64)
    ranks = []
    for query in range(QUERIES):
        cosine = dict(zip(names, matrix @ unit[CORPUS[query]], strict=True))
        left = [i for i in range(len(CORPUS)) if i != query]
        left.sort(key=lambda i: (-cosine[CORPUS[i]], i))
        ranks.append(left.index(PAIRS + query))
    return np.array(ranks)


def test_recall_equals_that_of_a_full_sort(data_dir):
    result = InDomainRetrieval().score(encode, data_dir)
    ranks = by_hand()
    queries = [(i, PAIRS + i) for i in range(QUERIES)]
    assert partner_ranks(encode, CORPUS, queries).tolist() == ranks.tolist()
    assert 0 < (ranks < 1).sum() < (ranks < 5).sum() < (ranks < 10).sum() < len(ranks)
    for row, k in zip(result.rows, (1, 5, 10), strict=True):
        assert (row["metric"], row["n"]) == (f"recall@{k}", 97)
        assert row["value"] == pytest.approx(100 * (ranks < k).mean())
    assert result.items["value"].tolist() == [float(rank < 1) for rank in ranks]
