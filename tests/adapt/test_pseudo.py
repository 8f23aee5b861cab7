"""Pseudo-queries: what makes the query is taken out of its answer."""

import numpy as np
import pytest

from adapt.pseudo import KINDS, PseudoQueries
from eval.retrieval.lexical import Words

TITLE = "Rare birds of the northern coast"
FIRST = "Puffins and gannets nest on steep sea cliffs in early summer."
REST = "The colony was counted by three boats. Numbers of adult gannets fell after the cold winter of the survey."
CORPUS = [
    f"{TITLE} {FIRST} {REST}",
    *["The boats and the winter in the early summer on the sea."] * 9,
]


@pytest.fixture
def queries():
    return PseudoQueries(CORPUS)


@pytest.mark.parametrize("recipe", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_every_kind_has_its_words_from_what_it_takes_out(queries, recipe, seed):
    query, answer = queries.make(recipe, TITLE, f"{FIRST} {REST}", np.random.default_rng(seed))
    source, _, made = recipe.partition(", ")
    taken = {"title": TITLE, "first": FIRST}.get(source)
    if source == "title":
        assert (query, answer) == (TITLE, f"{FIRST} {REST}")
    elif source == "first":
        assert answer == f"{TITLE} {REST}"
    elif source == "document":
        assert answer == f"{TITLE} {FIRST} {REST}"
    if taken and made in ("", "reduced", "keywords"):
        assert {*Words()(query)} <= {*Words()(taken)}
    if made == "keywords":
        assert 2 <= len(query.split()) <= 8
    assert queries.make(recipe, TITLE, f"{FIRST} {REST}", np.random.default_rng(seed)) == (
        query,
        answer,
    )


def test_the_rarest_half_is_left_out_or_replaced_by_words_of_the_answer(queries):
    rng = np.random.default_rng(0)
    reduced, _ = queries.make("first, reduced", TITLE, f"{FIRST} {REST}", rng)
    assert reduced == "and on sea cliffs in early summer."
    replaced, answer = queries.make("first, replaced", TITLE, f"{FIRST} {REST}", rng)
    assert {*Words()(replaced)} - {*Words()(reduced)} <= {*Words()(answer)}


@pytest.mark.parametrize(
    ("title", "body"), [("", "too short"), ("Note", "a b c d e f g h i"), ("", "")]
)
def test_a_short_document_makes_no_query(queries, title, body):
    assert queries.make("title", title, body, np.random.default_rng(0)) is None
    assert queries.make("first", "", "too short", np.random.default_rng(0)) is None


def test_pieces_of_a_text_without_sentences_take_their_place(queries):
    body = " ".join(f"w{i}" for i in range(40))
    words = body.split()
    first = queries.make("first", "", body, np.random.default_rng(0))
    assert first == (" ".join(words[:12]), " ".join(words[12:]))
    query, rest = queries.make("sentence", "", body, np.random.default_rng(3))
    assert query in body and sorted([*query.split(), *rest.split()]) == sorted(body.split())
