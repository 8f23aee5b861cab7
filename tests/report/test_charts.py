"""Places, ticks and marks of the charts."""

import math
import re

import pytest

from report.charts import BOTTOM, LEFT, RIGHT, TOP, Axis, Scale, Series, chart, finite


def test_a_linear_scale_maps_its_ends_and_its_middle():
    scale = Scale(Axis("x", margin=0), [10, 20, 30], LEFT, RIGHT)
    assert (scale(10), scale(20), scale(30)) == (LEFT, (LEFT + RIGHT) / 2, RIGHT)


def test_a_logarithmic_scale_gives_equal_room_to_equal_ratios():
    scale = Scale(Axis("y", log=True, margin=0), [0.01, 100], BOTTOM, TOP)
    assert [scale(v) for v in (0.01, 1, 100)] == [BOTTOM, (BOTTOM + TOP) / 2, TOP]
    assert list(scale.ticks().values()) == ["0.01", "0.1", "1", "10", "100"]


@pytest.mark.parametrize(
    "low, high", [(0, 1), (-2.46, -2.35), (80.5, 81.4), (0, 125_000), (1e-7, 3e-7), (5, 5), (0, 0)]
)
def test_ticks_are_few_round_and_inside(low, high):
    scale = Scale(Axis("y"), [low, high], 0, 100)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 7
    assert all(0 <= scale(value) <= 100 for value in ticks)
    assert len(set(ticks.values())) == len(ticks), "no two marks read alike"
    step = min(b - a for a, b in zip(list(ticks), list(ticks)[1:], strict=False))
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert min(abs(mantissa - m) for m in (1, 2, 2.5, 5)) < 1e-6


def test_a_line_goes_through_its_points():
    one = Series(0, "a", [(0, 0.0), (10, 1.0)], bars=[(5, 0.25, 0.75)])
    drawn = chart("t", Axis("x", margin=0), Axis("y", margin=0), [one])
    assert f'd="M{LEFT:.1f},{BOTTOM:.1f}L{RIGHT:.1f},{TOP:.1f}"' in drawn
    middle, quarter = (LEFT + RIGHT) / 2, (BOTTOM - TOP) / 4
    assert f'd="M{middle},{BOTTOM - quarter}V{TOP + quarter}"' in drawn


def test_points_that_are_no_numbers_are_left_out_and_an_empty_chart_is_nothing():
    assert finite([(1, math.nan), (2, math.inf), (3, 1.7e308), (4, 0.5)]) == [(4, 0.5)]
    assert chart("t", Axis("x"), Axis("y"), [Series(0, "a", [])]) == ""


def test_eight_runs_differ_by_colour_or_marker_and_names_are_escaped():
    series = [Series(i, f"<run {i}>", [(i, i)]) for i in range(8)]
    drawn = chart("<title>", Axis("<x>"), Axis("<y>"), series, join=False)
    looks = re.findall(r'<g class="(run-\d)"><path d="([^"]+)"', drawn)
    assert len(set(looks)) == 8
    assert "&lt;run 3&gt;: 3 at 3" in drawn
    assert not re.search(r"<(run|x>|y>)", drawn)
    assert drawn.count("<title>") == 8, "those of the marks"
