"""What a reader sees in the charts: points in their places, looks that differ."""

import math
import re
from base64 import b64decode
from pathlib import Path
from xml.etree import ElementTree

import report.figures
from report.figures import COLOURS, MARKERS, Curve, curves, image

STYLE = (Path(report.figures.__file__).parent / "style.css").read_text()
SVG = "{http://www.w3.org/2000/svg}"


def drawn(image):
    """Shape and colour of every mark, and the texts of the axes."""
    root = ElementTree.fromstring(b64decode(image.removeprefix("data:image/svg+xml;base64,")))
    uses = [use for group in root.iter(f"{SVG}g") if group.get("clip-path") for use in group.iter(f"{SVG}use")]
    marks = [(use.get("{http://www.w3.org/1999/xlink}href"), use.get("style").split(";")[0]) for use in uses]
    return marks, [text.text for text in root.iter(f"{SVG}text")]


def test_runs_differ_by_colour_or_marker_and_the_page_has_the_same_colours():
    lines = [Curve(run, [(run, 1)]) for run in range(28)]
    marks, texts = drawn(image(lines, "points"))
    assert len({*marks}) == 28 == len(COLOURS) * len(MARKERS) and "points" in texts
    assert {colour for _, colour in marks} == {f"fill: {colour}" for colour in COLOURS}
    assert re.findall(r"--c\d: (#\w+);", STYLE) == [*COLOURS] and len(re.findall(r"\.mark-\d::", STYLE)) == len(MARKERS)
    assert image(lines, "points") == image(lines, "points")


HISTORY = [
    {"step": 10, "contrastive": 4.0, "eval_aux_mlm": 5.0, "eval_aux_mlm_shuffled_cls": 5.5, "eval_dev_spearman": 70.0},
    {"step": 20, "contrastive": 0.1, "eval_aux_mlm": 4.0, "eval_aux_mlm_shuffled_cls": 5.0, "eval_dev_spearman": 72.0},
]


def test_every_logged_quantity_has_a_chart_the_dev_score_first():
    second = [{"step": 5, "contrastive": value} for value in (math.nan, math.inf, 1.7e308)]
    charts = curves(["a", "b", "c"], [HISTORY, second, []])
    names = ["eval_dev_spearman", "contrastive", "eval_aux_gap", "eval_aux_mlm"]
    assert [about.partition(";")[0] for _, about, *_ in charts] == names
    assert charts[0][0] == "The dev score" and {named for *_, named, _ in charts} == {"a"}
    marks, texts = drawn(charts[1][-1])
    assert len(marks) == 2 and "log scale" in texts
    assert len(drawn(charts[2][-1])[0]) == 2
