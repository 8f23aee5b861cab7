"""Pseudo-queries: what makes the query is taken out of its answer."""

import numpy as np
import pytest

from adapt.pseudo import KINDS, PseudoQueries, first_sentence
from eval.retrieval.lexical import Words

TITLE = "Rare birds of the northern coast"
FIRST = "Puffins and gannets nest on steep sea cliffs in early summer."
REST = (
    "The colony was counted by three boats. Numbers of adult gannets fell after the cold winter of "
    "the survey."
)
CORPUS = [
    f"{TITLE} {FIRST} {REST}",
    *["The boats and the winter in the early summer on the sea."] * 9,
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_every_kind_has_its_words_from_what_it_takes_out(kind, seed):
    def made():
        rng = np.random.default_rng(seed)
        return PseudoQueries(CORPUS).make(kind, TITLE, f"{FIRST} {REST}", rng)

    query, answer = made()
    assert answer == f"{TITLE} {REST}" and made() == (query, answer)
    if kind == "first":
        assert query == FIRST
    else:
        assert 2 <= len(query.split()) <= 8 and {*Words()(query)} <= {*Words()(FIRST)}


def test_a_short_document_makes_no_query():
    assert first_sentence("", "too short") is None
    assert first_sentence("", "") is None


def test_pieces_of_a_text_without_sentences_take_their_place():
    words = [f"w{i}" for i in range(40)]
    first = first_sentence("", " ".join(words))
    assert first == (" ".join(words[:12]), " ".join(words[12:]))
