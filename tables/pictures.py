"""The picture of a table that is a figure in its paper: a curve with the paper's points beside ours, or a heat map."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from common.files import writing
from eval.analyse.pictures import looks
from tables.specification import Table


def draw(table: Table, rows: list[dict[str, Any]], path: Path) -> None:
    """Write the picture of a table with a `figure`; what was neither printed nor run is left out."""
    figure, axes = plt.subplots(figsize=(7.5, 5.4), layout="constrained")
    axes.set_title(f"{table.title}\n{table.paper}, {table.place}", fontsize=11, parse_math=False)
    axes.set_xlabel(table.figure.x, fontsize=11)
    axes.set_ylabel(table.figure.y, fontsize=11)
    draw_on = _heat_map if table.figure.kind == "heat map" else _curve
    draw_on(axes, table, rows)
    with writing(path) as part:
        figure.savefig(part, dpi=150, format="png")
    plt.close(figure)


def points(table: Table, rows: list[dict[str, Any]]) -> Iterator[tuple[str, Any, Any, dict[str, Any]]]:
    """(series, x, y, JSON row) of every figure that has a place."""
    columns = {column.name: column for column in table.columns}
    lines = {row.label: row for row in table.rows}
    for one in rows:
        row, column = lines[one["label"]], columns[one["column"]]
        if column.x is None:
            yield row.series or one["column"], row.x, row.y, one
        else:
            yield row.label, column.x, row.y, one


def _curve(axes: Axes, table: Table, rows: list[dict[str, Any]]) -> None:
    found = list(points(table, rows))
    others = sorted({one["backbone"] for one in rows if one["ours"] and one["backbone"] != one["paper_backbone"]})
    backbone = f" ({', '.join(others)})" if others else ""
    names = dict.fromkeys(f"{series}, {whose}" for series, *_ in found for whose in ("paper", "ours"))
    for name, look in looks(names).items():
        series, whose = name.rsplit(", ", 1)
        value = "published" if whose == "paper" else "ours"
        shown = [(x, one[value], one[f"{value}_std"] or 0) for s, x, _, one in found if s == series]
        shown = sorted(point for point in shown if point[1] is not None)
        if shown:
            xs, ys, stds = zip(*shown, strict=True)
            axes.errorbar(xs, ys, yerr=stds, markersize=7, linewidth=1.6, capsize=3,
                          label=name if whose == "paper" else name + backbone,
                          linestyle="--" if whose == "paper" else "-", **look)  # fmt: skip
    if table.figure.log:
        axes.set_xscale("symlog", linthresh=1) if any(x == 0 for _, x, *_ in found) else axes.set_xscale("log")
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=10, frameon=False)


def _heat_map(axes: Axes, table: Table, rows: list[dict[str, Any]]) -> None:
    """One square a pair; ours in colour, below it in brackets what the paper prints."""
    found = list(points(table, rows))
    xs, ys = (list(dict.fromkeys(point[i] for point in found)) for i in (1, 2))
    values = [[float("nan")] * len(xs) for _ in ys]
    for _, x, y, one in found:
        text = "missing" if one["ours"] is None else f"{one['ours']:.2f}"
        text += "" if one["published"] is None else f"\n({one['published']:.2f})"
        values[ys.index(y)][xs.index(x)] = float("nan") if one["ours"] is None else one["ours"]
        axes.text(xs.index(x), ys.index(y), text, ha="center", va="center", fontsize=9,
                  bbox={"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 1.5})  # fmt: skip
    axes.imshow(values, cmap="viridis")
    axes.set_xticks(range(len(xs)), xs, rotation=20)
    axes.set_yticks(range(len(ys)), ys)
