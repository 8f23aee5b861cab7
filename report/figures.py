"""The charts of the report as SVG elements: drawn by matplotlib, coloured by the page's style sheet.

A run has one colour and one marker everywhere; both come from its number, so runs can be told apart without colour.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from report.curves import History, logged
from report.measures import ABOVE, Texts

COLOURS = ("#0072b2", "#c04e00", "#00795a", "#b04a86", "#8a6100", "#5f55b5", "#444b54")  # `--c0` to `--c6` in style.css
MARKERS = ("o", "s", "^", "D")  # `.mark-0` to `.mark-3`
THEME = {"quiet": "#5a626c", "grid": "#e8eaed", "card": "#ffffff"}  # style.css has each as a variable
VARIABLES = {colour: f"var(--{name})" for name, colour in THEME.items()}
VARIABLES |= {colour: f"var(--c{number})" for number, colour in enumerate(COLOURS)}
SIZE = (5.83, 3.75)  # inches of 72 SVG units; a unit is about a pixel on the page
SVG = "{http://www.w3.org/2000/svg}"
MANY = 60  # points from which on a line has no markers
WIDE_RANGE = 20  # largest over smallest value from which on a curve has a logarithmic axis
STYLE = {
    "axes.edgecolor": THEME["quiet"], "axes.labelcolor": THEME["quiet"], "xtick.color": THEME["quiet"],
    "ytick.color": THEME["quiet"], "axes.spines.right": False, "axes.spines.top": False, "axes.axisbelow": True,
    "grid.color": THEME["grid"], "font.size": 11, "lines.linewidth": 2, "lines.markeredgewidth": 0.8,
    "lines.markeredgecolor": THEME["card"], "svg.fonttype": "none", "text.parse_math": False,
}  # fmt: skip

Point = tuple[float, float]


class Chart(NamedTuple):
    """A chart with its caption: a title, and what is shown."""

    title: str
    about: str
    svg: Markup


@dataclass(frozen=True)
class Series:
    """One run in one chart: points, and vertical bars (x, low, high) where there are any."""

    run: int
    label: str
    points: Sequence[Point]
    bars: Sequence[tuple[float, float, float]] = field(default=())


def curves(labels: Sequence[str], histories: Sequence[History]) -> list[Chart]:
    """A chart for every logged quantity with all runs in it, the dev score first."""
    found = [logged(history) for history in histories]
    charts = []
    for name in sorted({name for one in found for name in one}, key=lambda name: (not _is_score(name), name)):
        lines = [Series(i, labels[i], finite(list(zip(*one[name], strict=True))))
                 for i, one in enumerate(found) if name in one]  # fmt: skip
        values = [value for line in lines for _, value in line.points]
        log = bool(values) and min(values) > 0 and max(values) > WIDE_RANGE * min(values) and not _is_score(name)
        svg = chart(name, "optimizer step", "Spearman x 100" if _is_score(name) else "value", lines, log)
        charts.append(Chart(name, "(dev score)" if _is_score(name) else "", svg))
    return charts


def _is_score(name: str) -> bool:
    return name.endswith("_spearman")


def finite(points: Sequence[Point]) -> list[Point]:
    """The points that can be drawn; a loss that was not a number has no place in a chart."""
    return [point for point in points if all(math.isfinite(value) and abs(value) < 1e300 for value in point)]


def geometry(labels: Sequence[str], results: Mapping[str, Mapping[int, dict[str, Any]]], texts: Texts) -> list[Chart]:
    """A chart for every analysis that was made.

    Args:
        labels: of the runs.
        results: analysis -> {run number: its result}, see `report.measures.Measured`.
        texts: what was encoded.
    """
    drawn = {"alignment_uniformity": _alignment, "anisotropy": _spectrum, "cosine_by_gold": _by_gold}
    return [drawn[name](labels, found, texts) for name, found in results.items()]


def _alignment(labels: Sequence[str], found: Mapping[int, dict[str, Any]], texts: Texts) -> Chart:
    one = next(iter(found.values()))
    about = f"{texts.material.name}: {one['positives']:,} pairs with gold > {ABOVE:g}, {one['sentences']:,} sentences"
    points = [Series(i, labels[i], [(each["uniformity"], each["alignment"])]) for i, each in found.items()]
    x, y = "uniformity (lower is better)", "alignment (lower is better)"
    return Chart("Alignment against uniformity", about, chart("alignment", x, y, points, join=False))


def _spectrum(labels: Sequence[str], found: Mapping[int, dict[str, Any]], texts: Texts) -> Chart:
    spectra = {i: each["spectrum"] for i, each in found.items()}
    # the last few values are often rounding and would stretch the axis; a collapsed model has none above zero
    floor = max(min(values[int(0.98 * len(values))] for values in spectra.values()), 1e-6) / 2
    lines = [Series(i, labels[i], [(n, value) for n, value in enumerate(values, 1) if value > floor])
             for i, values in spectra.items()]  # fmt: skip
    about = f"centred unit vectors of {next(iter(found.values()))['sentences']:,} sentences: {texts.material.source}"
    x, y = "number of the singular value", "singular value / largest"
    return Chart("Singular value spectrum", about, chart("spectrum", x, y, lines, log=True))


def _by_gold(labels: Sequence[str], found: Mapping[int, dict[str, Any]], texts: Texts) -> Chart:
    bins = next(iter(found.values()))["bins"]
    lines = []
    for place, (i, each) in enumerate(found.items()):
        shift = 0.5 * ((place + 0.5) / len(found) - 0.5)  # side by side, so that no bar hides another
        filled = [(number + shift, one) for number, one in enumerate(each["bins"]) if one["pairs"]]
        bars = [(spot, one["lower_quartile"], one["upper_quartile"]) for spot, one in filled]
        lines.append(Series(i, labels[i], [(spot, one["mean"]) for spot, one in filled], bars))
    counts = ", ".join(f"{one['pairs']:,}" for one in bins)
    about = f"{texts.material.name}: mean, and bar from lower to upper quartile; pairs in the bins: {counts}"
    names = [f"{one['from']} to {one['to']}" for one in bins]
    return Chart("Cosine by gold score", about, chart("gold", "gold score", "cosine", lines, categories=names))


def chart(
    name: str,
    x: str,
    y: str,
    series: Sequence[Series],
    log: bool = False,
    join: bool = True,
    categories: Sequence[str] = (),
) -> Markup:
    """An SVG element; empty where no series has a point.

    Args:
        name: of the chart, different from that of every other chart on the page.
        x: label of the horizontal axis.
        y: label of the vertical axis.
        series: one per run; all values finite, and positive where the axis is logarithmic.
        log: whether the vertical axis is logarithmic.
        join: connect the points of a series in their order.
        categories: names of the places 0, 1, ... on the horizontal axis, instead of numbers.
    """
    series = [one for one in series if one.points]
    if not series:
        return Markup("")
    with rc_context(STYLE | {"svg.hashsalt": name}):
        figure = Figure(figsize=SIZE, layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.add_subplot(xlabel=x, ylabel=f"{y}, log scale" if log else y)
        axes.patch.set_visible(False)
        for one in series:
            _draw(axes, one, join)
        axes.xaxis.get_major_locator().set_params(integer=join)  # steps and numbers; points alone may lie anywhere
        _scale(axes, log, categories)
        stream = io.BytesIO()
        figure.savefig(stream, format="svg")
    drawn = stream.getvalue().decode()
    root = ElementTree.fromstring(drawn)
    _add_tips(root, series, categories)
    _clean(root, set(re.findall(r'(?:href="|url\()#([^")]+)', drawn)))
    root.attrib = {"viewBox": root.get("viewBox"), "role": "img",
                   "aria-label": f"{x} against {y}: {', '.join(one.label for one in series)}"}  # fmt: skip
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _draw(axes: Axes, series: Series, join: bool) -> None:
    colour = COLOURS[series.run % len(COLOURS)]
    for at, low, high in series.bars:
        axes.plot([at, at], [low, high], color=colour, linewidth=5, alpha=0.35, solid_capstyle="butt")
    (line,) = axes.plot(
        *zip(*series.points, strict=True),
        color=colour,
        linestyle="-" if join else "",
        marker=MARKERS[series.run % len(MARKERS)] if len(series.points) < MANY else "",
        markersize=7 if join else 11,
    )
    line.set_gid(_group(series.run))


def _group(run: int) -> str:
    return f"points-of-{run}"


def _scale(axes: Axes, log: bool, categories: Sequence[str]) -> None:
    axes.grid(axis="y")
    axes.margins(x=0.05, y=0.1)
    if log:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(subs=(1,) if high > 100 * low else (1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    if categories:
        axes.set_xticks(range(len(categories)), categories)
        axes.set_xlim(-0.5, len(categories) - 0.5)


def _add_tips(root: ElementTree.Element, series: Sequence[Series], categories: Sequence[str]) -> None:
    """Put each point's value into its marker, where browsers show it on pointing."""
    groups = {group.get("id"): group for group in root.iter(f"{SVG}g")}
    for one in series:
        group = groups[_group(one.run)]
        group.attrib = {"class": "points", "data-run": str(one.run)}
        marks = list(group.iter(f"{SVG}use"))
        for mark, (at, value) in zip(marks, one.points if marks else (), strict=True):
            place = categories[round(at)] if categories else f"{at:,.7g}"
            ElementTree.SubElement(mark, f"{SVG}title").text = f"{one.label}: {value:.5g} at {place}"


def _clean(root: ElementTree.Element, used: set[str]) -> None:
    """Make matplotlib's document an element for a page whose Content-Security-Policy forbids inline style.

    Style becomes attributes, and colours become the style sheet's variables. Namespaces and metadata go, and so do ids
    that nothing refers to: matplotlib uses the same ones in every figure.

    Args:
        root: the document.
        used: the ids that something refers to.
    """
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{SVG}metadata", f"{SVG}style"):
                parent.remove(child)
    for one in root.iter():
        styles = [part.split(": ") for part in one.attrib.pop("style", "").split("; ") if part]
        one.attrib |= {key: VARIABLES.get(value, value) for key, value in styles if key != "font-family"}
        one.attrib = {key.rpartition("}")[2]: " ".join(value.split()) for key, value in one.attrib.items()
                      if key != "id" or value in used}  # fmt: skip
        one.tag = one.tag.removeprefix(SVG)
        one.text, one.tail = (one.text or "").strip() or None, None
