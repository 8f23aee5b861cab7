"""The curves of the report as SVG elements: drawn by matplotlib, coloured by the page's style
sheet.

The number of a run determines its colour and marker everywhere; the marker distinguishes runs
without colour.
"""

import io
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from training.curves import GAP, OTHER, OWN, History, dev_unit, logged

COLOURS = (
    "#0072b2",
    "#c04e00",
    "#00795a",
    "#b04a86",
    "#8a6100",
    "#5f55b5",
    "#444b54",
)  # `--c0` to `--c6` in style.css
MARKERS = ("o", "s", "^", "D")  # `.mark-0` to `.mark-3`
THEME = {
    "quiet": "#5a626c",
    "grid": "#e8eaed",
    "card": "#ffffff",
}  # style.css has each as a variable
VARIABLES = {colour: f"var(--{name})" for name, colour in THEME.items()}
VARIABLES |= {colour: f"var(--c{number})" for number, colour in enumerate(COLOURS)}
SIZE = (4.6, 3.1)  # inches of 72 SVG units; a unit is about a pixel on the page
MANY = 60  # lines with this many points have no markers
WIDE_RANGE = (
    20  # curves whose largest value exceeds the smallest by this factor get a logarithmic axis
)
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
STYLE = dict.fromkeys(
    ("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), THEME["quiet"]
)
STYLE |= {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "grid.color": THEME["grid"],
}
STYLE |= {
    "font.size": 11,
    "lines.linewidth": 2,
    "lines.markeredgewidth": 0.8,
    "lines.markeredgecolor": THEME["card"],
}
STYLE |= {"svg.fonttype": "none", "text.parse_math": False}


class Curve(NamedTuple):
    """One line: the number of its run, finite points, and whether it is dashed."""

    run: int
    points: list[tuple[float, float]]
    dashed: bool = False


def curves(labels: Sequence[str], histories: Sequence[History]) -> list[tuple[str, str, Markup]]:
    """Title, name and SVG of every logged quantity, the dev score first; both auxiliary losses share one."""
    by_run, charts = list(map(logged, histories)), []
    names = {OWN if name == OTHER else name for quantities in by_run for name in quantities}
    for name in sorted(names, key=lambda name: (not dev_unit(name), name)):
        lines = []
        for part in (OWN, OTHER) if name == OWN else (name,):
            for run, quantities in enumerate(by_run):
                points = [
                    point
                    for point in zip(*quantities.get(part, ()), strict=True)
                    if all(map(drawable, point))
                ]
                lines += [Curve(run, points, part == OTHER)] if points else []
        title = "The dev score" if dev_unit(name) else TITLES.get(name, name)
        about = f"{name}{_ABOUT.get(name, '')}"
        if lines:
            named = ", ".join(dict.fromkeys(labels[line.run] for line in lines))
            charts.append((title, about, svg(lines, f"{title}: {named}", dev_unit(name), about)))
    return charts


def drawable(value: float) -> bool:
    return math.isfinite(value) and abs(value) < 1e300


def svg(lines: Sequence[Curve], label: str, unit: str | None, salt: str) -> Markup:
    """An SVG element; the axis is logarithmic over a wide range of values without a `unit`."""
    values = [value for line in lines for _, value in line.points]
    log = not unit and min(values) > 0 and max(values) > WIDE_RANGE * min(values)
    with rc_context(STYLE | {"svg.hashsalt": salt}):
        figure = Figure(figsize=SIZE, layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.add_subplot(
            xlabel="optimizer step", ylabel="log scale" if log else unit or ""
        )
        axes.patch.set_visible(False)
        axes.grid(axis="y")
        axes.margins(x=0.05, y=0.1)
        for run, points, dashed in lines:
            marker = MARKERS[run % len(MARKERS)] if len(points) < MANY else ""
            look = {"linestyle": "--" if dashed else "-", "marker": marker, "markersize": 7}
            axes.plot(*zip(*points, strict=True), color=COLOURS[run % len(COLOURS)], **look)
        axes.xaxis.get_major_locator().set_params(integer=True)
        if log:
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.yaxis.set_major_locator(LogLocator(subs=(1,) if high > 100 * low else (1, 2, 5)))
            axes.yaxis.set_minor_locator(NullLocator())
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
        stream = io.StringIO()
        figure.savefig(stream, format="svg")
    drawn = re.sub(
        r"<metadata>.*?</metadata>|<style.*?</style>", "", stream.getvalue(), flags=re.DOTALL
    )
    drawn = re.sub(r'<g id="[^"]*"', "<g", drawn)  # matplotlib repeats these ids in every figure
    for colour, variable in VARIABLES.items():
        drawn = drawn.replace(colour, variable)
    box, content = (
        re.search(r'viewBox="([^"]*)"', drawn)[1],
        drawn.partition("<svg")[2].partition(">")[2],
    )
    return Markup('<svg viewBox="{}" role="img" aria-label="{}">{}').format(
        box, label, Markup(content)
    )
