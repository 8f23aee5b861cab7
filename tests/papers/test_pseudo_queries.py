"""The study of pseudo-queries: measures in closed form, and the tables of the committed figures."""

import json

from adapt.searches import AS_IT_IS, BM25
from papers.page import rewritten
from papers.pseudo_queries import COMMAND, measures, mixture_of, tables
from tests.sources import ROOT


def test_kinds_take_turns_and_a_missing_query_is_skipped():
    first = {AS_IT_IS: {7: 0.1, 8: 0.2, 9: 0.3}, BM25: {7: 0.4, 8: 0.5, 9: 0.6}}
    second = {AS_IT_IS: {8: 1.2, 5: 1.5}, BM25: {8: 2.2, 5: 2.5}}
    mixed = mixture_of([first, {}, second])
    assert mixed[AS_IT_IS] == {7: 0.1, 8: 1.2, 9: 0.3, 5: 1.5}
    assert mixed[BM25] == {7: 0.4, 8: 2.2, 9: 0.6, 5: 2.5}
    assert mixture_of([{}]) == {}


def test_measures_of_gains():
    assert measures([[(1.0, 2.0), (3.0, 4.0)], [(-1.0, 1.0), (2.0, -2.0)]]) == [
        "0.00",
        "50%",
        "+0.0",
        "2.0",
    ]


def test_the_page_is_that_of_the_figures():
    content = json.loads((ROOT / "results" / "pseudo-queries.json").read_text())
    page = (ROOT / "results" / "pseudo-queries.md").read_text(encoding="utf-8")
    assert rewritten(page, "tables", COMMAND, tables(content)) == page
