"""Scores of a model: rows of JSON, the figures behind them, and tables that a person reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eval.kept import writing
from eval.task import Encoder, Result, Task, average


def score_all(encode: Encoder, tasks: Sequence[Task], data_dir: str | Path) -> dict[Task, Result]:
    """Every task's result, in order."""
    return {task: task.score(encode, data_dir) for task in tasks}


def rows_of(results: dict[Task, Result], model: str, run: str | None) -> list[dict]:
    """All rows with their source; `headline` marks each task's own figure and the averages over those.

    An average is taken over the headline rows of one metric, split and mode where there are several.
    """
    rows = [{**row, "headline": i == 0} for result in results.values() for i, row in enumerate(result.rows)]
    kinds: dict[tuple, list[dict]] = {}
    for row in headline(rows):
        kinds.setdefault((row["metric"], row["split"], row["mode"]), []).append(row)
    rows += [average(kind) for kind in kinds.values() if len(kind) > 1]
    return [{**row, "model": model, "run": run} for row in rows]


def headline(rows: list[dict]) -> list[dict]:
    """The rows that a table of results shows."""
    return [row for row in rows if row.get("headline", True)]


def tables(rows_by_model: dict[str, list[dict]]) -> str:
    """One table for each metric among the headline rows, titled where there are several."""
    metrics = list(dict.fromkeys(row["metric"] for rows in rows_by_model.values() for row in headline(rows)))
    parts = []
    for metric in metrics:
        chosen = {m: [r for r in headline(rows) if r["metric"] == metric] for m, rows in rows_by_model.items()}
        parts.append((f"{metric}\n" if len(metrics) > 1 else "") + table(chosen))
    return "\n\n".join(parts)


def table(rows_by_model: dict[str, list[dict]]) -> str:
    """A Markdown table, one line a model, one column a task, two decimals; missing cells are shown as such."""
    places = list(dict.fromkeys((row["task"], row["split"]) for rows in rows_by_model.values() for row in rows))
    tasks = [task for task, _ in places]  # the split is said where it tells two columns apart
    body = [["model", *(f"{task} {split}" if tasks.count(task) > 1 else task for task, split in places)]]
    for model, rows in rows_by_model.items():
        values = {(row["task"], row["split"]): f"{row['value']:.2f}" for row in rows}
        body.append([model.replace("|", "\\|"), *(values.get(place, "missing") for place in places)])
    return markdown(body)


def details(rows: list[dict]) -> str:
    """Every row as a line of a Markdown table."""
    names = ["task", "split", "metric", "aggregation", "n", "value"]
    cells = [[f"{row[name]:.2f}" if name == "value" else str(row[name]) for name in names] for row in rows]
    return markdown([names, *cells])


def markdown(body: list[list[str]]) -> str:
    """Aligned Markdown from a header and lines of cells."""
    widths = [max(len(line[i]) for line in body) for i in range(len(body[0]))]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in body]
    rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def write_rows(path: str | Path, rows: list[dict]) -> None:
    """Write rows as a JSON list, one object a line, creating folders."""
    with writing(Path(path)) as part:
        part.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")


def items_path(scores: str | Path) -> Path:
    """Where the figures of every example stand that belong to a file of scores."""
    return Path(scores).with_suffix(".items.npz")


def write_scores(path: str | Path, results: dict[Task, Result], rows: list[dict]) -> None:
    """`scores.json` and, beside it, `scores.items.npz`: per task, the figure of every example."""
    items = {}
    for task, result in results.items():
        for name, values in result.items.items():
            items[f"{task.name}|{task.split}|{result.rows[0]['mode']}|{name}"] = values
    with writing(items_path(path)) as part, part.open("wb") as file:
        np.savez_compressed(file, **items)
    write_rows(path, rows)
