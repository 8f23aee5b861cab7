"""What a reader sees in the charts: points in their places, looks that differ."""

import base64
import math

import pandas as pd

from eval.analyse.pictures import styles
from report.figures import chart, curves


def test_every_logged_quantity_has_an_image_the_dev_score_first():
    first = {"step": 10, "contrastive": 4.0, "eval_dev_ndcg@10": 70.0}
    first |= {"eval_aux_mlm": 5.0, "eval_aux_mlm_shuffled_cls": 5.7}
    second = [{"step": 5, "contrastive": value} for value in (math.nan, math.inf, 1.7e308)]
    charts = curves(["<a>", "b", "c"], [[first, first | {"step": 20}], second, []])
    names = ["eval_dev_ndcg@10", "contrastive", "eval_aux_loss_increase", "eval_aux_mlm"]
    assert [about.partition(";")[0] for _, about, _ in charts] == names
    assert charts[0][0] == "The dev score"
    for _, _, image in charts:
        assert 'alt="' in image and "&lt;a&gt;" in image
        content = image.partition("base64,")[2].partition('"')[0]
        assert b"optimizer step" in base64.b64decode(content)


def drawn(unit, limit, *points):
    table = pd.DataFrame(points, columns=["run", "step", "value", "dashed"])
    [axes] = chart(table, styles("ab"), unit, limit).axes
    return axes


def test_runs_keep_their_looks_and_a_wide_range_is_logarithmic():
    points = ("b", 1, 4.0, False), ("b", 2, 0.1, False), ("a", 1, 3.0, False), ("a", 1, 2.0, True)
    axes = drawn(None, 0.3, *points)
    lines = [(line.get_color(), line.get_linestyle(), [*line.get_ydata()]) for line in axes.lines]
    a, b = (look["color"] for look in styles("ab").values())
    assert lines[:3] == [(b, "-", [4.0, 0.1]), (a, "-", [3.0]), (a, "--", [2.0])]
    assert axes.lines[3].get_ydata()[0] == 0.3, "the limit"
    assert (axes.get_yscale(), axes.get_ylabel()) == ("log", "log scale")
    axes = drawn("points", None, *points)
    assert (axes.get_yscale(), axes.get_ylabel()) == ("linear", "points")


def test_noise_does_not_fill_the_axis():
    noise = [("a", step, value, False) for step, value in enumerate((80.0, 80.02, 80.01))]
    bottom, top = drawn("points", None, *noise).get_ylim()
    assert top - bottom >= 2
