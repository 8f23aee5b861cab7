"""The study of pseudo-queries: measures in closed form, and the page of the committed figures."""

import json

import pytest

from adapt.searches import AS_IT_IS, BM25
from adapt.study import measures, mixture_of, page
from tests.sources import ROOT


def test_kinds_take_turns_and_a_missing_query_is_skipped():
    one = {AS_IT_IS: {7: 0.1, 8: 0.2, 9: 0.3}, BM25: {7: 0.4, 8: 0.5, 9: 0.6}}
    other = {AS_IT_IS: {8: 1.2, 5: 1.5}, BM25: {8: 2.2, 5: 2.5}}
    found = mixture_of([one, {}, other])
    assert found[AS_IT_IS] == {7: 0.1, 8: 1.2, 9: 0.3, 5: 1.5}
    assert found[BM25] == {7: 0.4, 8: 2.2, 9: 0.6, 5: 2.5}
    assert mixture_of([{}]) == {}


def test_measures_of_gains():
    found = measures([[(1.0, 2.0), (3.0, 4.0)], [(-1.0, 1.0), (2.0, -2.0)]])
    assert found == pytest.approx({"correlation": 0.0, "sign": 0.5, "bias": (-1 - 1 - 2 + 4) / 4, "error": 2.0})


def test_the_page_is_that_of_the_figures():
    content = json.loads((ROOT / "results" / "pseudo-queries.json").read_text())
    assert page(content) == (ROOT / "results" / "pseudo-queries.md").read_text(encoding="utf-8")
