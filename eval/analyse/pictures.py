"""The pictures of `python -m eval.analyse`: one for each analysis, with all models.

Every function takes {label: what the analysis found of that model} and the name of the data, and writes a PNG.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Results = dict[str, dict[str, Any]]

# Okabe and Ito's colours for colour-blind readers, without the yellow, which is hard to see on white. Markers tell
# lines apart in black and white; 7 colours and 8 markers make 56 combinations.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
QUERIES = 8  # of the neighbours; more make no readable picture
WIDTH = 52  # characters of a sentence in a line
COLUMN, LINE, INDENT = 4.6, 0.19, 0.1  # inches


def looks(results: Results) -> dict[str, dict[str, str]]:
    """Colour and marker of every model."""
    signs = zip(results, cycle(COLOURS), cycle(MARKERS), strict=False)
    return {label: {"color": colour, "marker": marker} for label, colour, marker in signs}


def _picture(title: str, shown: str, xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    figure, axes = plt.subplots(figsize=(7.5, 5.4), layout="constrained")
    axes.set_title(f"{title}\n{shown}", fontsize=12, parse_math=False)
    axes.set_xlabel(xlabel, fontsize=11)
    axes.set_ylabel(ylabel, fontsize=11)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    return figure, axes


def _save(figure: Figure, axes: Axes, path: str | Path) -> None:
    """Write with a legend under the axes, where it covers nothing."""
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, min(4, 70 // (max(map(len, labels)) + 6)))
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=10, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def draw_alignment_uniformity(results: Results, data: str, path: str | Path) -> None:
    """A point for each model; the lower left corner is best."""
    one = next(iter(results.values()))
    figure, axes = _picture(
        "Alignment and uniformity",
        f"{data}: {one['positives']:,} pairs with gold > {one['above']:g}, {one['sentences']:,} sentences",
        "uniformity: log mean exp(-2 d²) of all sentences (lower is better)",
        "alignment: mean d² of positives (lower is better)",
    )
    for label, look in looks(results).items():
        found = results[label]
        axes.plot(found["uniformity"], found["alignment"], linestyle="", markersize=11, label=label, **look)
    axes.margins(0.15)
    _save(figure, axes, path)


def draw_anisotropy(results: Results, data: str, path: str | Path) -> None:
    """The spectra on a logarithmic axis, mean cosine and effective rank in the legend."""
    one = next(iter(results.values()))
    figure, axes = _picture(
        "Anisotropy: spectrum of the centred unit vectors",
        f"{data}: {one['sentences']:,} sentences",
        "number of the singular value",
        "singular value / largest",
    )
    for label, look in looks(results).items():
        found = results[label]
        name = (f"{label}: mean cosine {found['mean_cosine']:.2f}, "
                f"effective rank {found['effective_rank']:.0f} of {found['dimensions']}")  # fmt: skip
        numbers = range(1, len(found["spectrum"]) + 1)
        marks = max(1, len(numbers) // 12)
        axes.plot(numbers, found["spectrum"], markevery=marks, markersize=5, linewidth=1.8, label=name, **look)
    axes.set_yscale("log")
    # the last values are often rounding errors and would stretch the axis; those of a collapsed model are zero
    lowest = min(found["spectrum"][int(0.98 * len(found["spectrum"]))] for found in results.values())
    axes.set_ylim(max(lowest, 1e-6) / 2, 1.3)
    _save(figure, axes, path)


def draw_cosine_by_gold(results: Results, data: str, path: str | Path) -> None:
    """Mean of each bin with a bar from the lower to the upper quartile, models side by side."""
    one = next(iter(results.values()))
    figure, axes = _picture(
        "Cosine by gold score",
        f"{data}: {one['pairs']:,} pairs",
        "gold score (number of pairs)",
        "cosine: mean, and bar from lower to upper quartile",
    )
    for place, (label, look) in enumerate(looks(results).items()):
        shift = 0.7 * ((place + 0.5) / len(results) - 0.5)
        filled = [(i + shift, found) for i, found in enumerate(results[label]["bins"]) if found["pairs"]]
        spots = [spot for spot, _ in filled]
        low, high = ([found[f"{side}_quartile"] for _, found in filled] for side in ("lower", "upper"))
        # no error bars: they do not allow a mean outside the quartiles
        axes.vlines(spots, low, high, color=look["color"], linewidth=3.5, alpha=0.45)
        means = [found["mean"] for _, found in filled]
        axes.plot(spots, means, linestyle="-", linewidth=1, markersize=7, label=label, **look)
    _name_bins(axes, [f"{b['from']} to {b['to']}\n({b['pairs']:,})" for b in one["bins"]])
    _save(figure, axes, path)


def draw_frequent_tokens(results: Results, data: str, path: str | Path) -> None:
    """A line for each model over the number of removed tokens."""
    one = next(iter(results.values()))
    figure, axes = _picture(
        "Average pooling without the most frequent tokens",
        f"{data}: {one['pairs']:,} pairs",
        "number of most frequent tokens left out, special ones included",
        "Spearman x 100",
    )
    for label, look in looks(results).items():
        axes.plot(results[label]["spearman"], markersize=7, linewidth=1.8, label=label, **look)
    _name_bins(axes, [str(count) for count in one["removed"]])
    _save(figure, axes, path)


def draw_length_bias(results: Results, data: str, path: str | Path) -> None:
    """Mean cosine over the length difference, the correlation in the legend."""
    one = next(iter(results.values()))
    figure, axes = _picture(
        "Length bias",
        f"{data}: {one['pairs']:,} random pairs of {one['sentences']:,} sentences",
        "difference in length, words (number of pairs)",
        "mean cosine of the pairs",
    )
    for label, look in looks(results).items():
        found = results[label]
        filled = [(i, b["mean"]) for i, b in enumerate(found["bins"]) if b["pairs"]]
        name = f"{label}: Spearman x 100 = {found['spearman']:.1f}"
        axes.plot(*zip(*filled, strict=True), markersize=7, linewidth=1.8, label=name, **look)
    _name_bins(axes, [f"{_span(b['from'], b['to'])}\n({b['pairs']:,})" for b in one["bins"]])
    _save(figure, axes, path)


def _name_bins(axes: Axes, names: list[str]) -> None:
    axes.set_xticks(range(len(names)), names, fontsize=10)
    axes.set_xlim(-0.5, len(names) - 0.5)


def _span(low: int, high: int | None) -> str:
    if high is None:
        return f"{low} or more"
    return str(low) if low == high else f"{low} to {high}"


def draw_neighbours(results: Results, data: str, path: str | Path) -> None:
    """A page to read: a block for each query, a column for each model; the title counts the queries left out."""
    one = next(iter(results.values()))
    shown = min(QUERIES, len(one["queries"]))
    left_out = "" if shown == len(one["queries"]) else f" (the first {shown} of {len(one['queries'])} queries)"
    lines = _page(results, shown)
    width, height = max(7.5, COLUMN * len(results) + 0.2), LINE * (len(lines) + 3)
    figure = plt.figure(figsize=(width, height))

    def write(inches: float, line: float, text: str, **look: Any) -> None:
        figure.text(inches / width, 1 - LINE * line / height, text, va="top", parse_math=False, **look)

    title = f"Nearest neighbours: {data}, {one['sentences']:,} sentences{left_out}"
    write(0.15, 0.6, title, fontsize=12)
    for number, (weight, pieces) in enumerate(lines, start=2):
        for inches, text in pieces:
            write(0.15 + inches, number + 0.5, text, fontsize=9.5, fontweight=weight)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _page(results: Results, shown: int) -> list[tuple[str, list[tuple[float, str]]]]:
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


PICTURES: dict[str, Callable[[Results, str, str | Path], None]] = {
    "alignment_uniformity": draw_alignment_uniformity,
    "anisotropy": draw_anisotropy,
    "cosine_by_gold": draw_cosine_by_gold,
    "frequent_tokens": draw_frequent_tokens,
    "length_bias": draw_length_bias,
    "neighbours": draw_neighbours,
}
