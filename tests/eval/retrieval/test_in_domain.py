import numpy as np
import pytest

from eval.retrieval.in_domain import InDomainRetrieval, partner_ranks
from tests.eval.toys import write_stsb

PAIRS, QUERIES = 1379, 97
# Sentences that are that of another row too.
SAME = {(6, "left"): "left 5", (9, "right"): "right 8"}
SAME |= {(20, "right"): "left 21", (700, "left"): "left 3"}


def sentence(i, side):
    return SAME.get((i, side), f"{side} {i}")


def encode(sentences):
    """The two sentences of a pair lie near each other, some nearer than others."""
    vectors = []
    for text in sentences:
        side, number = text.split()
        shift = np.random.default_rng([int(number), side == "left"]).normal(size=6)
        vectors.append(
            np.random.default_rng(int(number)).normal(size=6) + (int(number) % 5) / 6 * shift
        )
    return np.array(vectors, dtype=np.float32)


@pytest.fixture
def data_dir(tmp_path):
    """STS-B test in its published size; the first 97 pairs have score 5.0."""
    rows = []
    for i in range(PAIRS):
        score = "5.000" if i < QUERIES else "4.800"
        rows.append((score, sentence(i, "left"), sentence(i, "right")))
    return write_stsb(tmp_path, rows)


def by_hand():
    """The rank of every query's partner, from a full sort in which equal strings tie."""
    corpus = [sentence(i, side) for side in ("left", "right") for i in range(PAIRS)]
    vectors = encode(corpus)
    unit = dict(zip(corpus, vectors / np.linalg.norm(vectors, axis=1)[:, None], strict=True))
    names, matrix = list(unit), np.array(list(unit.values()), dtype=np.float64)
    ranks = []
    for query, partner in ((i, PAIRS + i) for i in range(QUERIES)):
        cosine = dict(zip(names, matrix @ unit[corpus[query]], strict=True))
        left = [i for i in range(len(corpus)) if i != query]
        left.sort(key=lambda i: (-cosine[corpus[i]], i))
        ranks.append(left.index(partner))
    return np.array(ranks)


def test_recall_equals_that_of_a_full_sort(data_dir):
    result = InDomainRetrieval().score(encode, data_dir)
    ranks = by_hand()
    assert 0 < (ranks < 1).sum() < (ranks < 5).sum() < (ranks < 10).sum() < len(ranks)
    for row, k in zip(result.rows, (1, 5, 10), strict=True):
        assert (row["metric"], row["n"]) == (f"recall@{k}", 97)
        assert row["value"] == pytest.approx(100 * (ranks < k).mean())
    assert result.items["value"].tolist() == [float(rank < 1) for rank in ranks]


def angles(sentences):
    return np.array([[np.cos(float(text)), np.sin(float(text))] for text in sentences])


@pytest.mark.parametrize(
    ("corpus", "query", "partner", "rank"),
    [
        (["0", "1", "0.5"], 0, 1, 1),  # 0.5 is nearer
        (["0", "0.5", "1"], 0, 1, 0),
        (["0", "0.5", "0"], 0, 1, 1),  # a copy of the query is nearer
        (["0", "0", "0.5"], 0, 1, 0),  # the partner is a copy of the query
        (["0", "0.5", "0.5"], 0, 1, 0),  # a copy of the partner behind it
        (["0.5", "0.5", "0"], 2, 1, 1),  # and before it: ties go by row
    ],
)
def test_small_corpora(corpus, query, partner, rank):
    assert partner_ranks(angles, corpus, [(query, partner)]).tolist() == [rank]
