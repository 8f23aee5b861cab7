"""The curves of the report as SVG elements, coloured by the page's style sheet.

The number of a run determines its colour and marker everywhere; the marker distinguishes runs
without colour.
"""

import io
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import pandas as pd
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from training.curves import CLEAR, INCREASE, OTHER, OWN, dev_unit, logged

Log: TypeAlias = Sequence[dict[str, Any]]  # the lines of log.jsonl
# `--c0` to `--c6` in style.css
COLOURS = ("#0072b2", "#c04e00", "#00795a", "#b04a86", "#8a6100", "#5f55b5", "#444b54")
MARKERS = ("o", "s", "^", "D")  # `.mark-0` to `.mark-3`
THEME = {"quiet": "#5a626c", "grid": "#e8eaed", "card": "#ffffff"}  # variables of style.css
VARIABLES = {
    **{colour: f"var(--{name})" for name, colour in THEME.items()},
    **{colour: f"var(--c{number})" for number, colour in enumerate(COLOURS)},
}
SIZE = (4.6, 3.1)  # inches of 72 SVG units; a unit is about a pixel on the page
MANY = 60  # lines with this many points have no markers
WIDE_RANGE = 20  # the largest value, in smallest ones, from which an axis is logarithmic
LARGEST = 1e300  # matplotlib cannot place values beyond it
TITLES = {  # of logged quantities; others have their names
    "aux_mlm": "The auxiliary network's loss in training",
    "contrastive": "The contrastive loss in training",
    "mlm": "The loss of masked words in training",
    OWN: "The auxiliary network's loss on held-out text",
    INCREASE: "What [CLS] tells the auxiliary network",
    "eval_mean_cosine": "Mean cosine of dev sentences",
    "eval_uniformity": "Uniformity of dev sentences (lower is better)",
}
_ABOUT = {
    OWN: "; dashed: with another sentence's [CLS]",
    INCREASE: f"; dotted: {CLEAR} nats, below it the vector hardly helps",
}
STYLE: dict[Any, Any] = {  # matplotlib's names
    "axes.edgecolor": THEME["quiet"],
    "axes.labelcolor": THEME["quiet"],
    "xtick.color": THEME["quiet"],
    "ytick.color": THEME["quiet"],
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "grid.color": THEME["grid"],
    "font.size": 11,
    "lines.linewidth": 2,
    "lines.markeredgewidth": 0.8,
    "lines.markeredgecolor": THEME["card"],
    "svg.fonttype": "none",
    "text.parse_math": False,
}


def curves(labels: Sequence[str], histories: Sequence[Log]) -> list[tuple[str, str, Markup]]:
    """Title, name and SVG of every logged quantity, the dev score first.

    Both auxiliary losses share a chart.
    """
    points = pd.concat([_points(run, history) for run, history in enumerate(histories)])
    points["dashed"] = points["name"] == OTHER
    points["chart"] = points["name"].replace(OTHER, OWN)
    charts = []
    names = sorted(points["chart"].unique(), key=lambda name: (not dev_unit(name), name))
    for name in names:
        unit, shown = dev_unit(name), points[points["chart"] == name]
        title = "The dev score" if unit else TITLES.get(name, name)
        about = f"{name}{_ABOUT.get(name, '')}"
        runs = ", ".join(labels[run] for run in shown["run"].unique())
        limit = CLEAR if name == INCREASE else None
        charts.append((title, about, svg(shown, f"{title}: {runs}", unit, about, limit)))
    return charts


def _points(run: int, history: Log) -> pd.DataFrame:
    """The points that can be drawn: the `run`, the `name` of the quantity, `step` and `value`."""
    points = [
        (run, name, step, value)
        for name, (steps, values) in logged(history).items()
        for step, value in zip(steps, values, strict=True)
    ]
    table = pd.DataFrame(points, columns=["run", "name", "step", "value"])
    return table[(table[["step", "value"]].abs() < LARGEST).all(axis=1)]  # false for nan


def svg(
    points: pd.DataFrame, label: str, unit: str | None, salt: str, limit: float | None = None
) -> Markup:
    """An SVG element with a line for each `run` of the points, and for its `dashed` ones.

    The axis is logarithmic over a wide range of values without a `unit`. A dotted line is drawn at
    the `limit`.
    """
    low, high = points["value"].min(), points["value"].max()
    log = not unit and low > 0 and high > WIDE_RANGE * low
    with rc_context(STYLE), rc_context({"svg.hashsalt": salt}):
        figure = Figure(figsize=SIZE, layout="constrained")
        figure.patch.set_visible(False)
        scale = "log scale" if log else unit or ""
        axes = figure.add_subplot(xlabel="optimizer step", ylabel=scale)
        _draw(axes, points, log)
        if limit is not None:
            axes.axhline(limit, color=THEME["quiet"], linestyle=":", linewidth=1)
        stream = io.StringIO()
        figure.savefig(stream, format="svg")
    drawn = stream.getvalue()
    drawn = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r'<g id="[^"]*"', "<g", drawn)  # matplotlib repeats these ids in every figure
    for colour, variable in VARIABLES.items():
        drawn = drawn.replace(colour, variable)
    box = drawn.partition('viewBox="')[2].partition('"')[0]
    content = drawn.partition("<svg")[2].partition(">")[2]
    element = Markup('<svg viewBox="{}" role="img" aria-label="{}">{}')
    return element.format(box, label, Markup(content))


def _draw(axes: Axes, points: pd.DataFrame, log: bool) -> None:
    axes.patch.set_visible(False)
    axes.grid(axis="y")
    axes.margins(x=0.05, y=0.1)
    for (dashed, _), line in points.groupby(["dashed", "run"]):
        run = int(line["run"].iloc[0])
        axes.plot(
            line["step"],
            line["value"],
            linestyle="--" if dashed else "-",
            marker=MARKERS[run % len(MARKERS)] if len(line) < MANY else "",
            markersize=7,
            color=COLOURS[run % len(COLOURS)],
        )
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
