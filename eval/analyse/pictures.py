"""One PNG per analysis, with all models in it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from eval.analyse.geometry import ABOVE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Results = dict[str, dict[str, Any]]  # label of a model -> result of the analysis
Looks = dict[str, dict[str, Any]]  # label -> colour and marker

# Okabe and Ito's colours for colour-blind readers, without yellow, which is hard to see on white.
# Markers distinguish lines in black and white; 7 colours and 8 markers give 56 combinations.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def alignment_uniformity(axes: Axes, results: Results, looks: Looks) -> str:
    """One point per model; the lower left corner is best."""
    axes.margins(0.15)
    for label, result in results.items():
        at = [result["uniformity"]], [result["alignment"]]
        axes.plot(*at, label=label, linestyle="", markersize=11, **looks[label])
    return f"{result['positives']:,} pairs with gold > {ABOVE:g}, {result['sentences']:,} sentences"


def cosine_by_gold(axes: Axes, results: Results, looks: Looks) -> str:
    """The mean of each bin, with a bar from the lower to the upper quartile."""
    for i, (label, result) in enumerate(results.items()):
        shift = 0.6 * ((i + 0.5) / len(results) - 0.5)  # bars must not overlap
        filled = [
            (number + shift, bin) for number, bin in enumerate(result["bins"]) if bin["pairs"]
        ]
        for x, bin in filled:  # not error bars: those do not allow a mean outside the quartiles
            ends = bin["lower_quartile"], bin["upper_quartile"]
            axes.vlines(x, *ends, color=looks[label]["color"], linewidth=3.5, alpha=0.45)
        axes.plot(
            [x for x, _ in filled], [bin["mean"] for _, bin in filled], label=label, **looks[label]
        )
    bins = [f"{bin['from']} to {bin['to']}\n({bin['pairs']:,})" for bin in result["bins"]]
    axes.set_xticks(range(len(bins)), bins, fontsize=9)
    axes.set_xlim(-0.5, len(bins) - 0.5)
    return f"{result['pairs']:,} pairs; mean, and bar from lower to upper quartile"


PICTURES = {  # analysis -> what draws it and returns what is shown; title, x axis, y axis
    "alignment_uniformity": (
        alignment_uniformity,
        "The best encoder is at the lower left.",
        "uniformity (lower is better)",
        "alignment (lower is better)",
    ),
    "cosine_by_gold": (
        cosine_by_gold,
        "The cosine should rise with the gold score.",
        "gold score (pairs)",
        "cosine",
    ),
}


def styles(labels: Iterable[str]) -> Looks:
    """The colour and marker of each label."""
    combinations = zip(labels, cycle(COLOURS), cycle(MARKERS), strict=False)
    return {label: {"color": colour, "marker": marker} for label, colour, marker in combinations}


def draw(analysis: str, results: Results, data: str, path: str | Path) -> None:
    """Write the picture of an analysis as PNG, with the legend below the axes."""
    from matplotlib.figure import Figure  # here: a slow import

    plot, title, x, y = PICTURES[analysis]
    # Text of 11 points stays readable at 400 pixels.
    figure = Figure(figsize=(5.4, 4.4), layout="constrained")
    figure.suptitle(title, fontsize=11)
    axes = figure.subplots()
    axes.set_xlabel(x, fontsize=11)
    axes.set_ylabel(y, fontsize=11)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    about = f"{data}: {plot(axes, results, styles(results))}"
    axes.set_title("\n".join(wrap(about, 76)), fontsize=9, parse_math=False)
    # Not `get_legend_handles_labels`, which leaves out labels that begin with an underscore.
    labels = [str(line.get_label()) for line in axes.lines]
    columns = max(1, min(4, 56 // (max(map(len, labels)) + 6)))
    legend = figure.legend(
        axes.lines, labels, loc="outside lower center", ncols=columns, fontsize=9, frameon=False
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    figure.savefig(path, dpi=200)
