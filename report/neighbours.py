"""Nearest neighbours as a page to read: a block a query, a column a model."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SHOWN = 8  # queries; more of them make no picture that can be read
WIDTH = 52  # characters of a sentence in a line
COLUMN, LINE, INDENT = 4.6, 0.19, 0.1  # inches
_FONT = 9.5


def draw_neighbours(results: dict[str, dict[str, Any]], data: str, path: str | Path) -> None:
    """Write the page; the title says how many queries are left out.

    Args:
        results: {label: {"sentences": how many were searched, "queries": [{"query": ..., "neighbours": [...]}]}}.
        data: what was searched.
        path: the PNG.
    """
    one = next(iter(results.values()))
    shown = min(SHOWN, len(one["queries"]))
    left_out = "" if shown == len(one["queries"]) else f" (the first {shown} of {len(one['queries'])} queries)"
    lines = _lines(results, shown)
    width, height = max(7.5, COLUMN * len(results) + 0.2), LINE * (len(lines) + 3)
    figure = plt.figure(figsize=(width, height))

    def write(inches: float, line: float, text: str, **look: Any) -> None:
        figure.text(inches / width, 1 - LINE * line / height, text, va="top", parse_math=False, **look)

    title = f"Nearest neighbours: {data}, {one['sentences']:,} sentences{left_out}"
    write(0.15, 0.6, title, fontsize=12)
    for number, (weight, pieces) in enumerate(lines, start=2):
        for inches, text in pieces:
            write(0.15 + inches, number + 0.5, text, fontsize=_FONT, fontweight=weight)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _lines(results: dict[str, dict[str, Any]], shown: int) -> list[tuple[str, list[tuple[float, str]]]]:
    """The page line by line: weight, and pieces of text with their distance from the left in inches."""
    columns = [found["queries"] for found in results.values()]
    starts = [INDENT + COLUMN * i for i in range(len(columns))]
    labels = [textwrap.shorten(label, WIDTH, placeholder=" …") for label in results]
    lines: list[tuple[str, list[tuple[float, str]]]] = []
    for number in range(shown):
        lines += [("bold", [(0.0, part)]) for part in _wrapped(columns[0][number]["query"], WIDTH * len(columns))]
        lines.append(("bold", list(zip(starts, labels, strict=True))))
        for near in zip(*(column[number]["neighbours"] for column in columns), strict=True):
            cosines = [(start, f"{one['cosine']:.2f}") for start, one in zip(starts, near, strict=True)]
            first, second = zip(*([*_wrapped(one["sentence"], WIDTH), "", ""][:2] for one in near), strict=True)
            texts = [start + INDENT * 4 for start in starts]
            lines.append(("normal", cosines + list(zip(texts, first, strict=True))))
            if any(second):
                lines.append(("normal", list(zip(texts, second, strict=True))))
        lines.append(("normal", []))
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, max_lines=2, placeholder=" …")
