"""What a reader sees in the charts: points in their places, looks that differ."""

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

import report.figures
from report.figures import COLOURS, MARKERS, THEME, curves, svg

STYLE = (Path(report.figures.__file__).parent / "style.css").read_text()


def chart(*lines, title="c", unit="points"):
    """The SVG of some lines, each with its run's number and points."""
    points = [(run, step, value, False) for run, line in lines for step, value in line]
    table = pd.DataFrame(points, columns=["run", "step", "value", "dashed"])
    return svg(table, title, unit, title)


def parsed(svg):
    """Run number -> its number of marks; the texts of the axes."""
    root = ElementTree.fromstring(str(svg).replace("<svg", '<svg xmlns:xlink="x"', 1))
    marks = {}
    for group in root.iter("g"):
        for use in group.iter("use") if group.get("clip-path") else ():
            run = int(re.search(r"fill: var\(--c(\d)\)", use.get("style"))[1])
            marks[run] = marks.get(run, 0) + 1
    return marks, [text.text for text in root.iter("text")]


def test_runs_differ_by_colour_or_marker_and_the_page_has_the_same_colours():
    svg = chart(*((run, [(run, 1)]) for run in range(28)))
    looks = set(re.findall(r'<use xlink:href="(#\w+)"[^>]*(fill: var\(--c\d\))', svg))
    assert len(looks) == 28 == len(COLOURS) * len(MARKERS)
    light = STYLE.split("@media")[0]
    for name, colour in [*((f"c{i}", colour) for i, colour in enumerate(COLOURS)), *THEME.items()]:
        assert f"--{name}: {colour};" in light
    assert len(re.findall(r"\.mark-\d::before", STYLE)) == len(MARKERS)
    assert not re.search(r"#[0-9a-f]{6}\b", svg), "every colour is the style sheet's"


def test_names_are_escaped():
    svg = chart((0, [(1, 1)]), title="<c>: <b>&", unit="<x> $a$")
    assert "<b>" not in svg and "<x>" not in svg and "<style" not in svg and "http" not in svg
    assert "<x> $a$" in parsed(svg)[1]
    assert 'aria-label="&lt;c&gt;: &lt;b&gt;&amp;' in svg


def test_a_chart_is_the_same_every_time_and_shares_no_id_with_another():
    first, again, other = (chart((0, [(1, 1), (2, 3)]), title=title) for title in "aab")
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in (first, other)]
    assert first == again
    assert ids[0] and not ids[0] & ids[1]
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', first)) == ids[0]


HISTORY = [
    {"step": 10, "contrastive": 4.0, "eval_dev_spearman": 70.0},
    {"step": 20, "contrastive": 0.1, "eval_dev_spearman": 72.0},
]
for line, own in zip(HISTORY, (5.0, 4.0), strict=True):
    line |= {"eval_aux_mlm": own, "eval_aux_mlm_shuffled_cls": own + 0.7}


def test_every_logged_quantity_has_a_chart_the_dev_score_first():
    second = [{"step": 5, "contrastive": value} for value in (math.nan, math.inf, 1.7e308)]
    charts = curves(["a", "b", "c"], [HISTORY, second, []])
    names = ["eval_dev_spearman", "contrastive", "eval_aux_loss_increase", "eval_aux_mlm"]
    assert [about.partition(";")[0] for _, about, _ in charts] == names
    assert charts[0][0] == "The dev score"
    marks, texts = parsed(charts[1][2])
    assert list(marks) == [0] and "log scale" in texts
    marks, texts = parsed(charts[2][2])
    assert marks[0] == 2


def test_the_loss_increase_has_a_line_at_the_limit():
    losses = [
        {"step": step, "eval_aux_mlm": 2.0, "eval_aux_mlm_shuffled_cls": 2.1} for step in (1, 2)
    ]
    gap = next(svg for _, about, svg in curves(["a"], [losses]) if "dotted: 0.3 nats" in about)
    assert "stroke-dasharray: 1,1.65" in gap
