import json
import math

import numpy as np
import pytest

from eval.scores import Result, headline, read_scores, rows_of, score_tables
from eval.scores import row as full_row
from tests.refusals import refused


def row(task, value, split="test"):
    return {"task": task, "value": value, "split": split, "mode": "test", "metric": "spearman"}


def test_a_table_has_a_line_a_model_and_a_column_a_task():
    longer = [row("STS12", 100.0), row("SICK-R", -1)]
    first = [row("STS12", 70.126), row("Avg.", 7.5)]
    text = score_tables({"first": first, "a longer name": longer})
    assert text.splitlines() == [
        "| model         | STS12  | Avg.    | SICK-R  |",
        "|---------------|--------|---------|---------|",
        "| first         | 70.13  | 7.50    | missing |",
        "| a longer name | 100.00 | missing | -1.00   |",
    ]


def test_a_name_breaks_no_line_and_a_column_names_what_differs_and_always_a_dev_split():
    lines = score_tables({"a\nb\x1b[2J|c": [row("A", 70)]}).splitlines()
    assert len(lines) == 3 and lines[2].startswith("| a\\nb\\x1b[2J\\|c |")
    rows = [row("STS-B", 80.0), row("STS-B", 12.0, "file"), row("Avg.", 1.0)]
    assert score_tables({"m": rows}).splitlines()[0] == "| model | STS-B test | STS-B file | Avg. |"
    for split, mode, title in (("dev", "dev", "MR dev"), ("test", "fasttest", "MR fasttest")):
        scored = full_row("MR", split, "accuracy", "single", 9, 80.0, mode)
        assert score_tables({"m": [scored]}).splitlines()[0] == f"| model | {title} |"


def result(task, *metrics, value=70.0, n=10):
    rows = [full_row(task, "test", metric, "single", n, value) for metric in metrics]
    return Result(rows, {"value": np.ones(2)})


def test_rows_carry_their_model_and_the_first_of_a_task_is_its_headline():
    results = {"A": result("A", "spearman", "pearson"), "B": result("B", "spearman", value=60.0)}
    results["C"] = result("C", "accuracy")
    rows = rows_of(results, "m", "runs/x")
    found = [(r["task"], r["metric"], r.get("headline", True)) for r in rows]
    assert found[:2] == [("A", "spearman", True), ("A", "pearson", False)]
    assert found[2:4] == [("B", "spearman", True), ("C", "accuracy", True)]
    assert found[4:] == [("Avg.", "spearman", True)], "each metric has an average of its own"
    assert {(r["model"], r["run"]) for r in rows} == {("m", "runs/x")}
    assert rows[-1]["value"] == 65.0 and rows[-1]["n"] == 20
    assert [r["task"] for r in headline(rows)] == ["A", "B", "C", "Avg."]
    assert score_tables({"m": rows}) == score_tables({"m": headline(rows)})
    first, second = score_tables({"m": rows}).split("\n\n")
    assert first.splitlines()[0] == "spearman" and second.splitlines()[0] == "accuracy"
    assert second.splitlines()[-1] == "| m     | 70.00 |"


def test_a_table_shows_all_cuts_of_a_ranking_and_averages_only_the_first():
    metrics = ["recall@1", "recall@5", "recall@10"]
    cuts = [full_row("A", "test", m, "single", 10, 10.0 * i) for i, m in enumerate(metrics)]
    result_of = Result([{**cut, "shown": True} for cut in cuts])
    rows = {name: rows_of({"A": result_of}, name, None) for name in ("m", "n")}
    assert [cut["metric"] for cut in headline(rows["m"])] == ["recall@1"]
    assert score_tables(rows).splitlines() == [
        "| model | A recall@1 | A recall@5 | A recall@10 |",
        "|-------|------------|------------|-------------|",
        "| m     | 0.00       | 10.00      | 20.00       |",
        "| n     | 0.00       | 10.00      | 20.00       |",
    ]
    with_other = {"m": [*rows["m"], *rows_of({"B": result("B", "spearman")}, "m", None)]}
    parts = score_tables(with_other).split("\n\n")
    assert [part.splitlines()[0] for part in parts] == ["recall", "spearman"]


GOOD = full_row("STS12", "test", "spearman", "all", 9, 1.5)


@pytest.mark.parametrize(
    "wrong", [{"metric": None}, {"n": "9"}, {"n": 0}, {"value": math.nan}, {"value": "1"}]
)
def test_a_bad_file_of_scores_is_refused(tmp_path, wrong):
    (tmp_path / "scores.json").write_text(json.dumps([GOOD, {**GOOD, **wrong}]))
    assert "row 2 is no score" in refused(read_scores, tmp_path / "scores.json")
    refusals = {"[]": "no scores", '["row"]': "row 1 is no score", "[{}]": "('task')"}
    for rows, said in refusals.items():
        (tmp_path / "scores.json").write_text(rows)
        assert said in refused(read_scores, tmp_path / "scores.json")
