"""What a reader sees in the charts: points in their places, values in the tips, looks that differ."""

import math
import re
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

import report.figures
from report.figures import COLOURS, MANY, MARKERS, THEME, Series, chart, curves, finite, geometry

STYLE = (Path(report.figures.__file__).parent / "style.css").read_text()


def parsed(svg):
    """Run number -> (marks as (x, y, tip), element); the texts of the axes."""
    root = ElementTree.fromstring(svg)
    found = {}
    for group in root.iter("g"):
        if group.get("class") == "points":
            marks = [(float(use.get("x")), float(use.get("y")), use.findtext("title")) for use in group.iter("use")]
            found[int(group.get("data-run"))] = marks, group
    return found, [text.text for text in root.iter("text")]


def is_linear(places, values):
    """Whether places on the page are a linear function of the values."""
    slope, offset = np.polyfit(values, places, 1)
    return np.abs(slope * np.array(values) + offset - places).max() < 0.01 and slope != 0


def test_marks_stand_where_their_values_are_and_say_them():
    points = [(0, 0.5), (10, 2.0), (40, -1.25)]
    found, texts = parsed(chart("c", "step", "loss", [Series(1, "two", points)]))
    marks, group = found[1]
    assert is_linear([x for x, _, _ in marks], [x for x, _ in points])
    assert is_linear([-y for _, y, _ in marks], [y for _, y in points])
    assert marks[2][0] > marks[0][0] and marks[1][1] < marks[2][1], "to the right, and upwards"
    assert [tip for _, _, tip in marks] == ["two: 0.5 at 0", "two: 2 at 10", "two: -1.25 at 40"]
    line = re.findall(r"[-\d.]+", group.find("path").get("d"))
    assert [float(number) for number in line] == [place for x, y, _ in marks for place in (x, y)]
    assert {"step", "loss", "0", "10", "20"} <= set(texts)


def test_a_logarithmic_axis_gives_equal_room_to_equal_ratios():
    found, texts = parsed(chart("c", "step", "loss", [Series(0, "a", [(1, 0.01), (2, 1), (3, 100)])], log=True))
    heights = [y for _, y, _ in found[0][0]]
    assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=1e-3)
    assert {"0.01", "0.1", "1", "10", "100", "loss, log scale"} <= set(texts)


@pytest.mark.parametrize("low, high", [(-2.46, -2.35), (0, 125_000), (1e-7, 3e-7), (5, 5), (0, 0), (5, 5 + 1e-8)])
def test_ticks_are_few_and_no_two_read_alike(low, high):
    _, texts = parsed(chart("c", "x", "y", [Series(0, "a", [(1, low), (2, high)])]))
    ticks = texts[texts.index("x") + 1 : -1]
    assert 2 <= len(ticks) <= 9 and len(set(ticks)) == len(ticks)
    assert texts[: texts.index("x")] == ["1", "2"], "no step and a half"


def test_points_that_are_no_numbers_are_left_out_and_an_empty_chart_is_nothing():
    assert finite([(1, math.nan), (2, math.inf), (3, 1.7e308), (math.inf, 1), (4, 0.5)]) == [(4, 0.5)]
    assert chart("c", "x", "y", [Series(0, "a", [])]) == ""


def test_a_long_curve_is_a_line_without_marks():
    found, _ = parsed(chart("c", "x", "y", [Series(0, "a", [(i, i % 7) for i in range(MANY)])]))
    marks, group = found[0]
    assert marks == [] and group.find("path") is not None


def test_runs_differ_by_colour_or_marker_and_the_page_has_the_same_colours():
    svg = chart("c", "x", "y", [Series(i, str(i), [(i, i)]) for i in range(28)], join=False)
    found, _ = parsed(svg)
    looks = {(group.find(".//use").get("fill"), group.find(".//path").get("d")) for _, group in found.values()}
    assert len(looks) == 28 == len(COLOURS) * len(MARKERS)
    light = STYLE.split("@media")[0]
    for name, colour in [*((f"c{i}", colour) for i, colour in enumerate(COLOURS)), *THEME.items()]:
        assert f"--{name}: {colour};" in light
    assert len(re.findall(r"\.mark-\d::before", STYLE)) == len(MARKERS)
    assert not re.search(r"#[0-9a-f]{6}\b", svg), "every colour is the style sheet's"


def test_names_are_escaped_and_nothing_needs_inline_style():
    svg = chart("<c>", "<x> $a$", "y", [Series(0, "<b>&\"' $1", [(1, 1)])])
    assert "<b>" not in svg and "<x>" not in svg and "style" not in svg and "http" not in svg
    found, texts = parsed(svg)
    assert found[0][0][0][2] == "<b>&\"' $1: 1 at 1"
    assert "<x> $a$" in texts
    assert ElementTree.fromstring(svg).get("aria-label") == "<x> $a$ against y: <b>&\"' $1"


def test_a_chart_is_the_same_every_time_and_shares_no_id_with_another():
    one, again, other = (chart(name, "x", "y", [Series(0, "a", [(1, 1), (2, 3)])]) for name in "aab")
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in (one, other)]
    assert one == again
    assert ids[0] and not ids[0] & ids[1]
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', one)) == ids[0]


HISTORY = [
    {"step": 10, "contrastive": 4.0, "eval_aux_mlm": 5.0, "eval_aux_mlm_shuffled_cls": 5.5, "eval_dev_spearman": 70.0},
    {"step": 20, "contrastive": 0.1, "eval_aux_mlm": 4.0, "eval_aux_mlm_shuffled_cls": 5.0, "eval_dev_spearman": 72.0},
]


def test_every_logged_quantity_has_a_chart_the_dev_score_first():
    charts = curves(["a", "b", "c"], [HISTORY, [{"step": 5, "contrastive": math.nan}], []])
    assert [one.title for one in charts] == [
        "eval_dev_spearman", "contrastive", "eval_aux_gap", "eval_aux_mlm", "eval_aux_mlm_shuffled_cls"]  # fmt: skip
    assert [one.about for one in charts[:2]] == ["(dev score)", ""]
    found, texts = parsed(charts[1].svg)
    assert list(found) == [0] and "value, log scale" in texts
    gap, texts = parsed(charts[2].svg)
    assert [tip for *_, tip in gap[0][0]] == ["a: 0.5 at 10", "a: 1 at 20"] and "value" in texts


def test_the_geometry_of_the_vectors():
    filled = {"pairs": 2, "mean": 0.5, "lower_quartile": 0.25, "upper_quartile": 0.75}
    empty = {"pairs": 0, "mean": None, "lower_quartile": None, "upper_quartile": None}
    bins = [{"from": i, "to": i + 1, **(filled if i else empty)} for i in range(5)]
    results = {
        "alignment_uniformity": {1: {"alignment": 0.2, "uniformity": -2.5, "positives": 1231, "sentences": 2551}},
        "anisotropy": {0: {"sentences": 9, "spectrum": [1.0, 0.5, 0.1]}, 1: {"sentences": 9, "spectrum": [0.0, 0.0]}},
        "cosine_by_gold": {0: {"bins": bins}, 1: {"bins": bins}},
    }
    texts = SimpleNamespace(material=SimpleNamespace(name="STS-B test", source="x.txt"))
    alignment, spectrum, gold = geometry(["a", "b"], results, texts)
    assert alignment.about == "STS-B test: 1,231 pairs with gold > 4, 2,551 sentences"
    assert [tip for *_, tip in parsed(alignment.svg)[0][1][0]] == ["b: 0.2 at -2.5"]
    assert spectrum.about.endswith("9 sentences: x.txt")
    found, _ = parsed(spectrum.svg)
    assert list(found) == [0], "a collapsed model has no value above zero"
    assert [tip for *_, tip in found[0][0]] == ["a: 1 at 1", "a: 0.5 at 2", "a: 0.1 at 3"]
    found, names = parsed(gold.svg)
    assert [tip for *_, tip in found[1][0]] == [f"b: 0.5 at {i} to {i + 1}" for i in range(1, 5)], "no pair, no point"
    assert "0 to 1" in names and "pairs in the bins: 0, 2, 2, 2, 2" in gold.about
    bars = [one for one in ElementTree.fromstring(gold.svg).iter("path") if one.get("stroke-opacity")]
    assert len(bars) == 8
    x, low, _, high = (float(number) for number in re.findall(r"[-\d.]+", bars[4].get("d")))
    assert (x, (low + high) / 2) == pytest.approx(found[1][0][0][:2], abs=0.01), "the mean is in the middle of the bar"
