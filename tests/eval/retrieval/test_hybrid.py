"""Both scores together: by hand, with ties and with queries that BM25 does not know."""

import numpy as np
import pytest

from eval.retrieval.beir import SEARCHES, BeirTask
from eval.retrieval.hybrid import best, cosines, fused, standardised
from eval.retrieval.lexical import Lexical
from tests.eval.toys import letters


def test_cosines_are_standardised_over_the_corpus_and_bm25_is_scaled_over_its_matches():
    dense, lexical = np.array([0.1, 0.5, 0.3], np.float32), np.array([0, 2, 6], np.float32)
    expected = 0.6 * (dense - 0.3) / np.sqrt(0.08 / 3) + 0.4 * lexical / (4 + 2)
    assert fused(dense, lexical, 0.6) == pytest.approx(expected, abs=1e-6)
    assert standardised(np.full(3, 0.1, np.float32)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("weight", [0, 0.5, 1])
def test_without_a_known_word_the_dense_order_stays_ties_included(weight):
    dense = np.nextafter(np.float32([0.5, 0.5, 0.5, 0.5]), np.float32([0, 1, 1, 0]))
    both = fused(dense, np.zeros(4, np.float32), weight)
    assert best(both, 4).tolist() == best(dense, 4).tolist() == [1, 2, 0, 3]


@pytest.mark.parametrize("k", [0, 1, 3, 7, 9])
def test_ties_go_to_the_lower_index(k):
    scores = np.array([1.0, 2.0, 1.0, -0.0, 2.0, 0.0, 1.0])
    assert best(scores, k).tolist() == [1, 4, 0, 2, 6, 3, 5][:k]


def test_a_set_is_ranked_by_each_search(beir, monkeypatch):
    beir.queries |= {"empty": "", "unknown": "bcdqx"}
    beir.grades |= {"empty": {"d2": 1}, "unknown": {"d1": 1}}
    beir.write()
    rankings = {}
    monkeypatch.setattr("eval.retrieval.beir.COSINES", 90)  # two queries at a time
    monkeypatch.setattr("eval.retrieval.beir.QUERIES", 1)
    monkeypatch.setattr("eval.retrieval.beir.per_query", lambda rankings, _: [*rankings])
    for search in SEARCHES:
        task = BeirTask("small", search=search)
        [data] = task.load(beir.root).values()
        rankings[search] = dict(zip(data.queries, task.per_query(letters, data), strict=True))
    lexical = Lexical.of(beir.texts())
    dense = cosines(letters(list(data.queries.values())), letters(beir.texts()))
    for row, (query, text) in zip(dense, data.queries.items(), strict=True):
        words = lexical.scores(text)
        assert rankings["bm25"][query] == [f"d{i}" for i in best(words, 99) if words[i] > 0]
        assert rankings["hybrid"][query] == [f"d{i}" for i in best(fused(row, words), 99)]
        assert rankings["hybrid-0.2"][query] == [f"d{i}" for i in best(fused(row, words, 0.2), 99)]
        assert len(rankings["hybrid"][query]) == len(dense[0])
    for query in ("empty", "unknown"):
        assert rankings["bm25"][query] == []
        assert rankings["hybrid"][query] == rankings["dense"][query]
