"""One PNG chart per analysis, with all models in it.

`python -m report` draws the same charts as SVG.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from eval.analyse.geometry import ABOVE

Results = dict[str, dict[str, Any]]  # label of a model -> result of the analysis

# Okabe and Ito's colours for colour-blind readers, without yellow, which is hard to see on white. Markers distinguish
# lines in black and white; 7 colours and 8 markers give 56 combinations.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


class Series(NamedTuple):
    """One model in a chart: points, optional vertical bars (x, low, high), a note, the line style."""

    label: str
    points: Sequence[tuple[float, float]]
    bars: Sequence[tuple[float, float, float]] = ()
    note: str = ""
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """The content of a chart, without its style: one series per model.

    Attributes:
        title: a sentence, unique on a page.
        about: what is shown.
        join: connect the points of a series.
        log: logarithmic y axis.
        ticks: labels of 0, 1, ... on the x axis.
    """

    title: str
    about: str
    x: str
    y: str
    series: Sequence[Series]
    join: bool = True
    log: bool = False
    ticks: Sequence[str] = ()


def alignment_uniformity(results: Results, data: str) -> Chart:
    """One point per model; the lower left corner is best."""
    first = next(iter(results.values()))
    about = f"{data}: {first['positives']:,} pairs with gold > {ABOVE:g}, {first['sentences']:,} sentences"
    points = [Series(label, [(result["uniformity"], result["alignment"])]) for label, result in results.items()]
    x, y = "uniformity (lower is better)", "alignment (lower is better)"
    return Chart("The best encoder is at the lower left.", about, x, y, points, join=False)


def anisotropy(results: Results, data: str) -> Chart:
    """The spectra on a logarithmic axis, with mean cosine and effective rank as notes."""
    # the last few values are often rounding noise and would stretch the axis; in a collapsed model all are zero
    spectra = {label: result["spectrum"] for label, result in results.items()}
    floor = max(min(values[int(0.98 * len(values))] for values in spectra.values()), 1e-6) / 2
    lines = []
    for label, result in results.items():
        rank = f"effective rank {result['effective_rank']:.0f} of {result['dimensions']}"
        note = f"mean cosine {result['mean_cosine']:.2f}, {rank}"
        points = [(number, value) for number, value in enumerate(spectra[label], 1) if value > floor]
        lines.append(Series(label, points, note=note))
    about = f"{data}: centred unit vectors of {next(iter(results.values()))['sentences']:,} sentences"
    x, y = "index of the singular value", "singular value / largest"
    return Chart("A flatter spectrum uses more directions.", about, x, y, lines, log=True)


def cosine_by_gold(results: Results, data: str) -> Chart:
    """The mean of each bin, with a bar from the lower to the upper quartile."""
    first, lines = next(iter(results.values())), []
    for i, (label, result) in enumerate(results.items()):
        shift = 0.6 * ((i + 0.5) / len(results) - 0.5)  # bars must not overlap
        filled = [(number + shift, bin) for number, bin in enumerate(result["bins"]) if bin["pairs"]]
        bars = [(x, bin["lower_quartile"], bin["upper_quartile"]) for x, bin in filled]
        lines.append(Series(label, [(x, bin["mean"]) for x, bin in filled], bars))
    about = f"{data}: {first['pairs']:,} pairs; mean, and bar from lower to upper quartile"
    ticks = [f"{bin['from']} to {bin['to']}\n({bin['pairs']:,})" for bin in first["bins"]]
    return Chart(
        "The cosine should rise with the gold score.", about, "gold score (pairs)", "cosine", lines, ticks=ticks
    )


CHARTS: dict[str, Callable[[Results, str], Chart]] = {
    "alignment_uniformity": alignment_uniformity,
    "anisotropy": anisotropy,
    "cosine_by_gold": cosine_by_gold,
}


def styles(labels: Iterable[str]) -> dict[str, dict[str, str]]:
    """The colour and marker of each label."""
    combinations = zip(labels, cycle(COLOURS), cycle(MARKERS), strict=False)
    return {label: {"color": colour, "marker": marker} for label, colour, marker in combinations}


def frame(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    """An empty figure with a title and axis labels."""
    figure = Figure(figsize=(5.4, 4.4), layout="constrained")  # text of 11 points stays readable at 400 pixels
    axes = figure.subplots()
    heading, *rest = title.split("\n")
    figure.suptitle("\n".join(wrap(heading, 60)), fontsize=11, parse_math=False)
    axes.set_title("\n".join(wrap(" ".join(rest), 76)), fontsize=9, parse_math=False)
    axes.set_xlabel(x, fontsize=11)
    axes.set_ylabel(y, fontsize=11)
    return figure, axes


def draw(chart: Chart, path: str | Path) -> None:
    """Write a chart as PNG, with the legend below the axes."""
    figure, axes = frame(f"{chart.title}\n{chart.about}", chart.x, chart.y)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    axes.margins(0.05 if chart.join else 0.15)
    look = {"linestyle": "-" if chart.join else "", "markersize": 6 if chart.join else 11, "linewidth": 1.6}
    for line, style in zip(chart.series, styles(line.label for line in chart.series).values(), strict=True):
        if line.bars:  # not error bars: those do not allow a mean outside the quartiles
            axes.vlines(*zip(*line.bars, strict=True), color=style["color"], linewidth=3.5, alpha=0.45)
        xs, ys = zip(*line.points, strict=True) if line.points else ((), ())
        label = f"{line.label}: {line.note}" if line.note else line.label
        axes.plot(xs, ys, markevery=max(1, len(xs) // 12), label=label, **look, **style)
    if chart.log:
        axes.set_yscale("log")
    if chart.ticks:
        axes.set_xticks(range(len(chart.ticks)), chart.ticks, fontsize=9)
        axes.set_xlim(-0.5, len(chart.ticks) - 0.5)
    # Not `get_legend_handles_labels`, which leaves out labels that begin with an underscore.
    labels = [str(line.get_label()) for line in axes.lines]
    columns = max(1, min(4, 56 // (max(map(len, labels)) + 6)))
    legend = figure.legend(axes.lines, labels, loc="outside lower center", ncols=columns, fontsize=9, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    figure.savefig(path, dpi=200)
