"""The charts of the report as SVG elements: drawn by matplotlib, coloured by the page's style sheet.

The number of a run determines its colour and marker everywhere; the marker distinguishes runs without colour.
"""

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from eval.analyse.pictures import CHARTS, Chart, Series
from report.measures import Texts
from training.curves import GAP, OTHER, OWN, History, dev_unit, logged

COLOURS = ("#0072b2", "#c04e00", "#00795a", "#b04a86", "#8a6100", "#5f55b5", "#444b54")  # `--c0` to `--c6` in style.css
MARKERS = ("o", "s", "^", "D")  # `.mark-0` to `.mark-3`
THEME = {"quiet": "#5a626c", "grid": "#e8eaed", "card": "#ffffff"}  # style.css has each as a variable
VARIABLES = {colour: f"var(--{name})" for name, colour in THEME.items()}
VARIABLES |= {colour: f"var(--c{number})" for number, colour in enumerate(COLOURS)}
SIZE = (4.6, 3.1)  # inches of 72 SVG units; a unit is about a pixel on the page
MANY = 60  # lines with this many points have no markers
WIDE_RANGE = 20  # curves whose largest value exceeds the smallest by this factor get a logarithmic axis
TITLES = {  # of logged quantities; others have their names
    "aux_mlm": "The auxiliary network's loss in training",
    "contrastive": "The contrastive loss in training",
    "mlm": "The loss of masked words in training",
    OWN: "The auxiliary network's loss on held-out text",
    GAP: "What the sentence vector tells the auxiliary network",
    "eval_mean_cosine": "Mean cosine of dev sentences",
    "eval_uniformity": "Uniformity of dev sentences (lower is better)",
}
_ABOUT = {OWN: "; dashed: with another sentence's [CLS]"}
STYLE = dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), THEME["quiet"])
STYLE |= {"axes.spines.right": False, "axes.spines.top": False, "axes.axisbelow": True, "grid.color": THEME["grid"]}
STYLE |= {"font.size": 11, "lines.linewidth": 2, "lines.markeredgewidth": 0.8, "lines.markeredgecolor": THEME["card"]}
STYLE |= {"svg.fonttype": "none", "text.parse_math": False}


def curves(labels: Sequence[str], histories: Sequence[History]) -> list[tuple[Chart, Markup]]:
    """A chart of all runs for every logged quantity, the dev score first; both auxiliary losses share one."""
    by_run = dict(zip(labels, map(logged, histories), strict=True))
    charts = []
    names = {OWN if name == OTHER else name for quantities in by_run.values() for name in quantities}
    for name in sorted(names, key=lambda name: (not dev_unit(name), name)):
        lines = []
        for part in (OWN, OTHER) if name == OWN else (name,):
            for label, quantities in by_run.items():
                if part in quantities:
                    points = finite(zip(*quantities[part], strict=True))
                    lines.append(Series(label, points, dashed=part == OTHER))
        values = [value for line in lines for _, value in line.points]
        log = bool(values) and min(values) > 0 and max(values) > WIDE_RANGE * min(values) and not dev_unit(name)
        unit = dev_unit(name)
        title, y = ("The dev score", unit) if unit else (TITLES.get(name, name), "")
        charts.append(Chart(title, f"{name}{_ABOUT.get(name, '')}", "optimizer step", y, lines, log=log))
    return [(chart, svg(chart, labels)) for chart in charts]


def finite(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that can be drawn, without NaN and infinite values."""
    return [point for point in points if all(math.isfinite(value) and abs(value) < 1e300 for value in point)]


def geometry(
    labels: Sequence[str], results: Mapping[str, Mapping[int, dict[str, Any]]], texts: Texts
) -> list[tuple[Chart, Markup]]:
    """The chart of every analysis, from {run number: its result}."""
    charts = []
    for name, by_run in results.items():
        by_label = {labels[run]: result for run, result in by_run.items()}
        charts.append(CHARTS[name](by_label, texts.origin if name == "anisotropy" else texts.name))
    return [(chart, svg(chart, labels)) for chart in charts]


def svg(chart: Chart, labels: Sequence[str]) -> Markup:
    """An SVG element; empty if no series has a point.

    Args:
        chart: all values finite, and positive if the axis is logarithmic.
        labels: of all runs; they determine the colour and marker of a series.
    """
    series = [(labels.index(line.label), line) for line in chart.series if line.points]
    if not series:
        return Markup("")
    with rc_context(STYLE | {"svg.hashsalt": chart.title + chart.about}):
        figure = Figure(figsize=SIZE, layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.add_subplot(xlabel=chart.x, ylabel=", ".join(filter(None, [chart.y, "log scale" * chart.log])))
        axes.patch.set_visible(False)
        axes.grid(axis="y")
        axes.margins(x=0.05, y=0.1)
        for run, line in series:
            colour = COLOURS[run % len(COLOURS)]
            for at, low, high in line.bars:
                axes.plot([at, at], [low, high], color=colour, linewidth=5, alpha=0.35, solid_capstyle="butt")
            style = ("--" if line.dashed else "-") if chart.join else ""
            marker = MARKERS[run % len(MARKERS)] if len(line.points) < MANY else ""
            look = {"color": colour, "linestyle": style, "marker": marker, "markersize": 7 if chart.join else 11}
            axes.plot(*zip(*line.points, strict=True), **look)
        axes.xaxis.get_major_locator().set_params(**({"integer": True} if chart.join else {"nbins": 5}))
        if chart.log:
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.yaxis.set_major_locator(LogLocator(subs=(1,) if high > 100 * low else (1, 2, 5)))
            axes.yaxis.set_minor_locator(NullLocator())
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
        if chart.ticks:
            axes.set_xticks(range(len(chart.ticks)), chart.ticks)
            axes.set_xlim(-0.5, len(chart.ticks) - 0.5)
        stream = io.StringIO()
        figure.savefig(stream, format="svg")
    about = f"{chart.title}: {', '.join(dict.fromkeys(line.label for _, line in series))}"
    drawn = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", stream.getvalue(), flags=re.DOTALL)
    drawn = re.sub(r'<g id="[^"]*"', "<g", drawn)  # matplotlib repeats these ids in every figure
    for colour, variable in VARIABLES.items():
        drawn = drawn.replace(colour, variable)
    box, content = re.search(r'viewBox="([^"]*)"', drawn)[1], drawn.partition("<svg")[2].partition(">")[2]
    return Markup('<svg viewBox="{}" role="img" aria-label="{}">{}').format(box, about, Markup(content))
