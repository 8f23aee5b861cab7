"""What several sections are built of: legend, table, a word on what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from report.charts import key
from report.markup import EMPTY, Markup, joined, tag
from report.runs import RunFolder

PREPARE = "python -m data.prepare sts"


def missing(*parts: object) -> Markup:
    """A plain word on what is not there, and how to get it."""
    return tag("p", *parts, class_="missing")


def legend(runs: Sequence[RunFolder]) -> Markup:
    """All runs with their colour and marker."""
    return tag("ul", *(tag("li", key(i, run.label), data_run=i) for i, run in enumerate(runs)), class_="keys")


def table(heads: Sequence[object], rows: Iterable[Sequence[object]], caption: object = "", name: str = "") -> Markup:
    """A table that scrolls by itself where it is too wide, its caption below; the first cell of a row is its head."""
    head = tag("tr", tag("td"), *(tag("th", cell, scope="col") for cell in heads))
    body = []
    for first, *cells in rows:
        body.append(tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in cells)))
    inner = tag("table", tag("thead", head), tag("tbody", *body))
    scrolled = tag("div", inner, class_=f"scroll {name}".strip(), tabindex="0")
    return joined(scrolled, tag("p", caption, class_="quiet") if caption else EMPTY)


def heads(runs: Sequence[RunFolder]) -> list[Markup]:
    """The heads of the columns of a table with one for each run."""
    return [key(i, run.label) for i, run in enumerate(runs)]
