"""The curves of the report, as images in the page."""

import base64
import io
from collections.abc import Sequence
from typing import Any, TypeAlias

import pandas as pd
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from eval.analyse.pictures import Looks, styles
from training.curves import CLEAR, INCREASE, OTHER, OWN, dev_unit, logged

Log: TypeAlias = Sequence[dict[str, Any]]  # the lines of log.jsonl
SIZE = (4.6, 3.1)  # inches
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


def curves(labels: Sequence[str], histories: Sequence[Log]) -> list[tuple[str, str, Markup]]:
    """Title, name and image of every logged quantity, the dev score first.

    Both auxiliary losses share a chart.
    """
    runs = zip(labels, histories, strict=True)
    points = pd.concat([_points(label, history) for label, history in runs])
    points["dashed"] = points["name"] == OTHER
    points["chart"] = points["name"].replace(OTHER, OWN)
    charts = []
    names = sorted(points["chart"].unique(), key=lambda name: (not dev_unit(name), name))
    for name in names:
        unit, shown = dev_unit(name), points[points["chart"] == name]
        title = "The dev score" if unit else TITLES.get(name, name)
        about = f"{name}{_ABOUT.get(name, '')}"
        figure = chart(shown, styles(labels), unit, CLEAR if name == INCREASE else None)
        charts.append(
            (title, about, _image(figure, f"{title}: {', '.join(shown['run'].unique())}"))
        )
    return charts


def _points(label: str, history: Log) -> pd.DataFrame:
    """The points that can be drawn: the `run`, the `name` of the quantity, `step` and `value`."""
    points = [
        (label, name, step, value)
        for name, (steps, values) in logged(history).items()
        for step, value in zip(steps, values, strict=True)
    ]
    table = pd.DataFrame(points, columns=["run", "name", "step", "value"])
    return table[(table[["step", "value"]].abs() < LARGEST).all(axis=1)]  # false for nan


def chart(points: pd.DataFrame, looks: Looks, unit: str | None, limit: float | None) -> Figure:
    """A line for each `run` of the points, and for its `dashed` ones.

    The axis is logarithmic over a wide range of values without a `unit`. A dotted line is drawn at
    the `limit`.
    """
    low, high = points["value"].min(), points["value"].max()
    log = not unit and low > 0 and high > WIDE_RANGE * low
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot(xlabel="optimizer step", ylabel="log scale" if log else unit or "")
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["right", "top"]].set_visible(False)
    for (run, dashed), line in points.groupby(["run", "dashed"], sort=False):
        look = looks[run] if len(line) < MANY else looks[run] | {"marker": ""}
        axes.plot(line["step"], line["value"], linestyle="--" if dashed else "-", **look)
    if not log:  # noise does not fill the axis
        bottom, top = axes.get_ylim()
        least = 2.0 if unit else 0.1 * max(abs(low), abs(high))
        more = max(0.0, least - (top - bottom)) / 2
        axes.set_ylim(bottom - more, top + more)
    if limit is not None:
        axes.axhline(limit, color="grey", linestyle=":", linewidth=1)
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    return figure


def _image(figure: Figure, label: str) -> Markup:
    stream = io.BytesIO()
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(stream, format="svg")
    content = base64.b64encode(stream.getvalue()).decode()
    return Markup('<img src="data:image/svg+xml;base64,{}" alt="{}">').format(content, label)
