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
    text = score_tables(
        {"first": [row("STS12", 70.126), row("Avg.", 7.5)], "a longer name": longer}
    )
    assert text.splitlines() == [
        "| model         | STS12  | Avg.    | SICK-R  |",
        "|---------------|--------|---------|---------|",
        "| first         | 70.13  | 7.50    | missing |",
        "| a longer name | 100.00 | missing | -1.00   |",
    ]


def test_a_name_does_not_break_its_line():
    lines = score_tables({"a\nb\x1b[2J|c": [row("A", 70)]}).splitlines()
    assert len(lines) == 3 and lines[2].startswith("| a\\nb\\x1b[2J\\|c |")


def test_a_task_with_two_splits_has_two_columns():
    text = score_tables({"m": [row("STS-B", 80.0), row("STS-B", 12.0, "file"), row("Avg.", 1.0)]})
    assert text.splitlines()[0] == "| model | STS-B test | STS-B file | Avg. |"
    assert text.splitlines()[2] == "| m     | 80.00      | 12.00      | 1.00 |"


def test_a_dev_score_is_never_shown_as_a_test_score():
    rows = [
        full_row("MR", split, "accuracy", "single", 9, 80.0, mode)
        for split, mode in (("dev", "dev"), ("test", "fasttest"))
    ]
    headings = [
        score_tables({"m": [scored]}).splitlines()[0]
        for scored in (*rows, row("STS-B", 80.0, "dev"))
    ]
    assert headings == ["| model | MR dev |", "| model | MR fasttest |", "| model | STS-B dev |"]


def result(task, *metrics, value=70.0, n=10):
    return Result(
        [full_row(task, "test", metric, "single", n, value) for metric in metrics],
        {"value": np.ones(2)},
    )


def test_rows_carry_their_model_and_the_first_of_a_task_is_its_headline():
    results = {"A": result("A", "spearman", "pearson"), "B": result("B", "spearman", value=60.0)}
    rows = rows_of(results, "m", "runs/x")
    assert [(r["task"], r["metric"], r.get("headline", True)) for r in rows] == [
        ("A", "spearman", True),
        ("A", "pearson", False),
        ("B", "spearman", True),
        ("Avg.", "spearman", True),
    ]
    assert {(r["model"], r["run"]) for r in rows} == {("m", "runs/x")}
    assert rows[-1]["value"] == 65.0 and rows[-1]["n"] == 20
    assert [r["task"] for r in headline(rows)] == ["A", "B", "Avg."]
    assert score_tables({"m": rows}) == score_tables({"m": headline(rows)})


def test_each_metric_has_a_table_and_an_average_of_its_own():
    results = {
        "A": result("A", "spearman"),
        "B": result("B", "accuracy"),
        "C": result("C", "accuracy"),
    }
    rows = rows_of(results, "m|n", None)
    assert [r["task"] for r in rows] == ["A", "B", "C", "Avg."]
    first, second = score_tables({"m|n": rows}).split("\n\n")
    assert first.splitlines()[0] == "spearman" and second.splitlines()[0] == "accuracy"
    assert first.splitlines()[-1] == "| m\\|n  | 70.00 |"


def test_a_table_shows_all_cuts_of_a_ranking_and_averages_only_the_first():
    metrics = ["recall@1", "recall@5", "recall@10"]
    cuts = [
        full_row("A", "test", metric, "single", 10, 10.0 * i) for i, metric in enumerate(metrics)
    ]
    rows = {name: rows_of({"A": Result(cuts, shown=3)}, name, None) for name in ("m", "n")}
    assert [cut["metric"] for cut in headline(rows["m"])] == ["recall@1"]
    assert score_tables(rows).splitlines() == [
        "| model | A recall@1 | A recall@5 | A recall@10 |",
        "|-------|------------|------------|-------------|",
        "| m     | 0.00       | 10.00      | 20.00       |",
        "| n     | 0.00       | 10.00      | 20.00       |",
    ]
    with_other = {"m": [*rows["m"], *rows_of({"B": result("B", "spearman")}, "m", None)]}
    assert [part.splitlines()[0] for part in score_tables(with_other).split("\n\n")] == [
        "recall",
        "spearman",
    ]


GOOD = full_row("STS12", "test", "spearman", "all", 9, 1.5)


@pytest.mark.parametrize(
    "wrong", [{"metric": None}, {"n": "9"}, {"n": 0}, {"value": math.nan}, {"value": "1"}]
)
def test_a_bad_file_of_scores_is_refused(tmp_path, wrong):
    (tmp_path / "scores.json").write_text(json.dumps([GOOD, {**GOOD, **wrong}]))
    assert "row 2 is no score" in refused(read_scores, tmp_path / "scores.json")
    for rows, said in {
        "[]": "contains no scores",
        '["row"]': "row 1 is no score",
        "[{}]": "('task')",
    }.items():
        (tmp_path / "scores.json").write_text(rows)
        assert said in refused(read_scores, tmp_path / "scores.json")
