import numpy as np
import pytest

from common.errors import BadInput
from eval.retrieval.in_domain import InDomainRetrieval, partner_ranks
from tests.eval.toys import write_stsb

PAIRS, QUERIES = 1379, 97
# First sentences 5 and 6 are one string, second ones 8 and 9 too; 20's second is 21's first; 3
# stands again in row 700.
SAME = {
    (6, "left"): "left 5",
    (9, "right"): "right 8",
    (20, "right"): "left 21",
    (700, "left"): "left 3",
}


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
    return write(tmp_path, QUERIES)


def write(root, queries):
    scores = ["5.000" if i < queries else "4.800" for i in range(PAIRS)]
    return write_stsb(
        root, [(scores[i], sentence(i, "left"), sentence(i, "right")) for i in range(PAIRS)]
    )


def by_hand():
    """The rank of every query's partner, from a full sort in which equal strings tie."""
    corpus = [sentence(i, side) for side in ("left", "right") for i in range(PAIRS)]
    unit = {
        text: vector / np.linalg.norm(vector)
        for text, vector in zip(corpus, encode(corpus), strict=True)
    }
    names, matrix = list(unit), np.array(list(unit.values()), dtype=np.float64)
    asked = [(i, PAIRS + i) for i in range(QUERIES)]
    ranks = []
    for query, partner in asked:
        cosine = dict(zip(names, matrix @ unit[corpus[query]], strict=True))
        left = [i for i in range(len(corpus)) if i != query]
        left.sort(key=lambda i: (-cosine[corpus[i]], i))
        ranks.append(left.index(partner))
    return np.array(ranks)


def test_recall_equals_that_of_a_full_sort(data_dir):
    result = InDomainRetrieval().score(encode, data_dir)
    ranks = by_hand()
    assert 0 < (ranks < 1).sum() < (ranks < 5).sum() < (ranks < 10).sum() < len(ranks)
    assert [row["metric"] for row in result.rows] == ["recall@1", "recall@5", "recall@10"]
    assert [row["value"] for row in result.rows] == [
        pytest.approx(100 * (ranks < k).mean()) for k in (1, 5, 10)
    ]
    assert {row["n"] for row in result.rows} == {len(ranks)} == {97}
    assert result.items["value"].tolist() == [float(rank < 1) for rank in ranks]


def angles(sentences):
    return np.array([[np.cos(float(text)), np.sin(float(text))] for text in sentences])


@pytest.mark.parametrize(
    ("corpus", "rank"),
    [
        (["0", "1", "0.5"], 1),  # 0.5 is nearer
        (["0", "0.5", "1"], 0),
        (["0", "0.5", "0"], 1),  # a copy of the query is nearer
        (["0", "0", "0.5"], 0),  # the partner is a copy of the query
        (["0", "0.5", "0.5"], 0),  # a copy of the partner behind it
    ],
)
def test_small_corpora(corpus, rank):
    assert partner_ranks(angles, corpus, [(0, 1)]).tolist() == [rank]


def test_ties_go_by_row():
    assert partner_ranks(angles, ["0.5", "0.5", "0"], [(2, 0), (2, 1)]).tolist() == [0, 1]
    assert partner_ranks(
        lambda texts: np.zeros((len(texts), 2)), ["a", "b", "c"], [(1, 0), (0, 2)]
    ).tolist() == [0, 1]


def test_another_number_of_queries_is_refused(tmp_path):
    with pytest.raises(BadInput, match=r"STS-B test in .* has 96 pairs scored 5\.0 instead of 97"):
        InDomainRetrieval().score(encode, write(tmp_path, 96))
