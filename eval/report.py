"""Scores as rows of JSON and as a table that a person reads."""

from __future__ import annotations

import json
from pathlib import Path


def table(rows_by_model: dict[str, list[dict]]) -> str:
    """A Markdown table, one line a model, one column a task, two decimals; missing cells are shown as such."""
    tasks = list(dict.fromkeys(row["task"] for rows in rows_by_model.values() for row in rows))
    body = [["model", *tasks]]
    for model, rows in rows_by_model.items():
        values = {row["task"]: f"{row['value']:.2f}" for row in rows}
        body.append([model, *(values.get(task, "missing") for task in tasks)])
    widths = [max(len(line[i]) for line in body) for i in range(len(body[0]))]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in body]
    rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def with_source(rows: list[dict], model: str, run: str | None) -> list[dict]:
    """The rows with the model they describe and the run it came from."""
    return [{**row, "model": model, "run": run} for row in rows]


def write_rows(path: str | Path, rows: list[dict]) -> None:
    """Write rows as a JSON list, one object a line, creating folders."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")
