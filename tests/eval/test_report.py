import json

from eval.report import table, with_source, write_rows


def row(task, value):
    return {"task": task, "value": value}


def test_a_table_has_a_line_a_model_and_a_column_a_task():
    found = table(
        {"first": [row("STS12", 70.126), row("Avg.", 7.5)], "a longer name": [row("STS12", 100.0), row("SICK-R", -1)]}
    )
    assert found.splitlines() == [
        "| model         | STS12  | Avg.    | SICK-R  |",
        "|---------------|--------|---------|---------|",
        "| first         | 70.13  | 7.50    | missing |",
        "| a longer name | 100.00 | missing | -1.00   |",
    ]


def test_rows_carry_their_model_and_run():
    rows = [row("a", 1.0), row("b", 2.0)]
    assert with_source(rows, "m", "runs/x") == [
        {"task": "a", "value": 1.0, "model": "m", "run": "runs/x"},
        {"task": "b", "value": 2.0, "model": "m", "run": "runs/x"},
    ]
    assert rows == [row("a", 1.0), row("b", 2.0)]


def test_written_rows_are_json_with_one_object_a_line(tmp_path):
    rows = [row("a", 70.123456789), row('quote " and ü', 2.0)]
    path = tmp_path / "new" / "scores.json"
    write_rows(str(path), rows)
    assert json.loads(path.read_text()) == rows
    assert len(path.read_text().splitlines()) == 4
    write_rows(path, rows[:1])
    assert json.loads(path.read_text()) == rows[:1]
