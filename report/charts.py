"""Charts as SVG: lines, points and bars on linear or logarithmic axes, coloured by the page's style sheet.

A run has one colour and one marker everywhere; both come from its number, so that a run is told apart without colour
too. Sizes are in SVG units, about a pixel where a chart is as wide as its natural width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from report.markup import EMPTY, Markup, joined, tag

COLOURS = 7  # `.run-0` to `.run-6` in style.css
MARKERS = (
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "M-3.5,-3.5h7v7h-7z",
    "M0,-5L4.5,3.5H-4.5z",
    "M0,-5L4.5,0L0,5L-4.5,0z",
)
WIDTH, HEIGHT = 420, 270
LEFT, RIGHT, TOP, BOTTOM = 56, 408, 26, 228  # of the plot inside the chart
MANY = 60  # points from which on a line has no markers
Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """What is shown along one direction; `names` replaces the numbers of an axis of categories."""

    label: str
    log: bool = False
    names: Mapping[float, str] | None = None
    margin: float = 0.05  # of the extent, added on both sides


@dataclass(frozen=True)
class Series:
    """One run in one chart: points, and vertical bars (x, low, high) where there are any."""

    run: int
    label: str
    points: Sequence[Point]
    bars: Sequence[tuple[float, float, float]] = field(default=())


class Scale:
    """Values to places: finite values, positive ones on a logarithmic axis -> SVG units from `start` to `end`."""

    def __init__(self, axis: Axis, values: Sequence[float], start: float, end: float) -> None:
        self.axis, self.start, self.end = axis, start, end
        shown = [self._inner(value) for value in (*values, *(axis.names or ()))]
        low, high = min(shown), max(shown)
        spread = (high - low) * axis.margin if high > low else 0.1 * abs(high) or 1.0
        self.low, self.high = low - spread, high + spread

    def _inner(self, value: float) -> float:
        return math.log10(value) if self.axis.log else value

    def __call__(self, value: float) -> float:
        share = (self._inner(value) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 2)

    def ticks(self) -> dict[float, str]:
        """Values to mark, and how they are written."""
        if self.axis.names:
            return dict(self.axis.names)
        values = _powers(self.low, self.high) if self.axis.log else _round_values(self.low, self.high)
        return {value: f"{value:,.7g}" for value in values}


def _round_values(low: float, high: float) -> list[float]:
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _powers(low: float, high: float) -> list[float]:
    exponents = range(math.floor(low), math.ceil(high) + 1)
    factors = (1,) if high - low > 2 else (1, 2, 5)
    every = [factor * 10.0**exponent for exponent in exponents for factor in factors]
    return [value for value in every if low <= math.log10(value) <= high]


def finite(points: Sequence[Point]) -> list[Point]:
    """The points that can be drawn; a loss that was not a number has no place in a chart."""
    return [(x, y) for x, y in points if math.isfinite(y) and abs(y) < 1e300]


def chart(title: object, x: Axis, y: Axis, series: Sequence[Series], join: bool = True) -> Markup:
    """A figure with its caption; empty where no series has a point.

    Args:
        title: the caption, text or markup.
        x: across.
        y: upwards.
        series: one a run; points finite, and positive where the axis is logarithmic.
        join: connect the points of a series in their order.
    """
    series = [one for one in series if one.points]
    if not series:
        return EMPTY
    across = Scale(x, [px for one in series for px, _ in one.points], LEFT, RIGHT)
    heights = [py for one in series for py in [*(p[1] for p in one.points), *(v for bar in one.bars for v in bar[1:])]]
    up = Scale(y, heights, BOTTOM, TOP)
    marks = [_marks(one, across, up, join) for one in series]
    text = f"{x.label} against {y.label}: {', '.join(one.label for one in series)}"
    drawing = tag("svg", _frame(across, up), *marks, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=text)
    return tag("figure", tag("figcaption", title), drawing)


def _frame(across: Scale, up: Scale) -> Markup:
    parts = []
    for value, name in up.ticks().items():
        place = up(value)
        parts.append(tag("path", d=f"M{LEFT},{place}H{RIGHT}", class_="grid"))
        parts.append(tag("text", name, x=LEFT - 7, y=place + 4, class_="tick end"))
    for value, name in across.ticks().items():
        place = across(value)
        parts.append(tag("path", d=f"M{place},{BOTTOM}v4", class_="axis"))
        parts.append(tag("text", name, x=place, y=BOTTOM + 18, class_="tick middle"))
    parts.append(tag("path", d=f"M{LEFT},{TOP}V{BOTTOM}H{RIGHT}", class_="axis"))
    parts.append(tag("text", up.axis.label + (", log scale" if up.axis.log else ""), x=4, y=13, class_="label"))
    middle = (LEFT + RIGHT) / 2
    parts.append(tag("text", across.axis.label, x=middle, y=HEIGHT - 6, class_="label middle"))
    return joined(*parts)


def _marks(series: Series, across: Scale, up: Scale, join: bool) -> Markup:
    places = [(across(px), up(py)) for px, py in series.points]
    parts = [tag("path", d=f"M{across(bx)},{up(low)}V{up(high)}", class_="bar") for bx, low, high in series.bars]
    if join and len(places) > 1:
        parts.append(tag("path", d="M" + "L".join(f"{px},{py}" for px, py in places), class_="line"))
    if len(places) < MANY:
        for (px, py), (vx, vy) in zip(places, series.points, strict=True):
            name = (across.axis.names or {}).get(vx, f"{vx:,.7g}")
            tip = tag("title", f"{series.label}: {vy:.5g} at {name}")
            place = f"translate({px},{py})" + ("" if join else "scale(1.6)")  # points without a line stand alone
            parts.append(tag("path", tip, d=_marker(series.run), transform=place, class_="mark"))
    return tag("g", *parts, class_=colour(series.run))


def _marker(run: int) -> str:
    return MARKERS[run % len(MARKERS)]


def colour(run: int) -> str:
    """The class that gives a run its colour."""
    return f"run-{run % COLOURS}"


def key(run: int, label: str) -> Markup:
    """A run's line and marker beside its name, for legends and the heads of columns."""
    parts = [tag("path", d="M1,8H27", class_="line"), tag("path", d=_marker(run), transform="translate(14,8)",
                                                          class_="mark")]  # fmt: skip
    swatch = tag("svg", *parts, viewBox="0 0 28 16", class_=f"swatch {colour(run)}", aria_hidden="true")
    return tag("span", swatch, tag("span", label), class_="key")
