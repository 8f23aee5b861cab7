"""scores.json: its rows, the per-example scores in the file next to it, and the printed tables."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.errors import BadInput, brief
from common.files import read_json, writing
from common.streams import visible

AVERAGE = "Avg."
_SCORES = "a scores file", "`python -m eval --output` writes one"


class Key(NamedTuple):
    """Two figures with equal keys can be compared."""

    task: str
    split: str
    mode: str
    metric: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Key:
        """The key of a row of scores.json."""
        return cls(*(row[name] for name in cls._fields))

    def __str__(self) -> str:
        """The task, followed by split, mode and metric if they are not the defaults of STS."""
        other = [
            word
            for word, default in zip(self[1:], ("test", "test", "spearman"), strict=True)
            if word != default
        ]
        return " ".join([self.task, *other])


@dataclass(frozen=True)
class Result:
    """The scores of one task.

    Attributes:
        rows: rows of scores.json, the headline first.
        items: examples for a paired comparison: `similarity` and `gold` of every pair, or `value`
            from 0 to 1 and `example`, see `example_ids`, of every query or sentence, each (n,).
        shown: number of rows that a table shows.
    """

    rows: list[dict[str, Any]]
    items: dict[str, np.ndarray] = field(default_factory=dict)
    shown: int = 1


def example_ids(examples: Iterable[object]) -> np.ndarray:
    """A number for the content of each example, (n,): two files with other numbers were scored on other data."""
    return np.array([zlib.crc32(repr(example).encode()) for example in examples], dtype=np.float64)


def row(
    task: str, split: str, metric: str, aggregation: str, n: int, value: float, mode: str = "test"
) -> dict:
    """One row of scores.json, without model and run."""
    names = {
        "task": task,
        "split": split,
        "mode": mode,
        "metric": metric,
        "aggregation": aggregation,
    }
    return {**names, "n": n, "value": float(value)}


def average(rows: list[dict]) -> dict:
    """The papers' average of headline rows: the mean of the values, each rounded to two decimals first."""
    mean = sum(round(row["value"], 2) for row in rows) / len(rows)
    count = sum(row["n"] for row in rows)
    return {**rows[0], "task": AVERAGE, "aggregation": "mean of tasks", "n": count, "value": mean}


def rows_of(
    results: Mapping[Any, Result], model: str, run: str | None, **settings: Any
) -> list[dict]:
    """All rows with model, run and the encoder's settings.

    `headline` marks main figures and averages, `shown` further rows for a table. Headline rows with
    the same metric, split and mode are averaged.
    """
    rows = []
    for result in results.values():
        for i, row in enumerate(result.rows):
            rows.append(
                {**row, "headline": i == 0, **({"shown": True} if 0 < i < result.shown else {})}
            )
    alike: dict[tuple, list[dict]] = {}
    for row in headline(rows):
        alike.setdefault((row["metric"], row["split"], row["mode"]), []).append(row)
    rows += [average(group) for group in alike.values() if len(group) > 1]
    return [{**row, "model": model, "run": run, **settings} for row in rows]


def headline(rows: list[dict]) -> list[dict]:
    """The rows that count in averages and comparisons."""
    return [row for row in rows if row.get("headline", True)]


def tables(rows_by_model: dict[str, list[dict]]) -> str:
    """One table per kind of metric, with titles if there are several; `recall@1` and `recall@5` are one kind."""
    shown = {
        m: [r for r in rows if r.get("shown", r.get("headline", True))]
        for m, rows in rows_by_model.items()
    }
    metrics = dict.fromkeys(row["metric"] for rows in shown.values() for row in rows)
    families: dict[str, list[str]] = {}
    for metric in metrics:
        families.setdefault(metric.split("@")[0], []).append(metric)
    parts = []
    for family, members in families.items():
        title = members[0] if len(members) == 1 else family
        chosen = {m: [r for r in rows if r["metric"] in members] for m, rows in shown.items()}
        parts.append(f"{title}\n" * (len(families) > 1) + table(chosen))
    return "\n\n".join(parts)


def table(rows_by_model: dict[str, list[dict]]) -> str:
    """A Markdown table with two decimals: one line per model, one column per figure, `missing` for
    no score.

    A column names its split, mode or metric if its task's columns differ in it, and always a dev
    split and fasttest.
    """
    keys = list(dict.fromkeys(Key.of(row) for rows in rows_by_model.values() for row in rows))
    titles = []
    for key in keys:
        others = [other for other in keys if other.task == key.task]
        differing = [
            name for name in Key._fields[1:] if len({getattr(other, name) for other in others}) > 1
        ]
        unusual = [name for name in ("split", "mode") if getattr(key, name) not in ("test", "file")]
        words = (getattr(key, name) for name in Key._fields[1:] if name in (*differing, *unusual))
        titles.append(" ".join([key.task, *dict.fromkeys(words)]))
    body = [["model", *titles]]
    for model, rows in rows_by_model.items():
        values = {Key.of(row): f"{row['value']:.2f}" for row in rows}
        body.append([model, *(values.get(key, "missing") for key in keys)])
    return markdown(body)


def markdown(body: list[list[str]]) -> str:
    """An aligned Markdown table; the first line of cells is the header."""
    body = [[visible(cell).replace("|", "\\|") for cell in line] for line in body]
    widths = [max(len(line[i]) for line in body) for i in range(len(body[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |"
        for line in body
    ]
    rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def write_rows(path: str | Path, rows: list[dict]) -> None:
    """Write rows as a JSON list, one object per line; creates folders."""
    with writing(Path(path)) as part:
        part.write_text(
            "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8"
        )


def items_path(scores: str | Path) -> Path:
    """The file next to a scores.json with the scores of every example."""
    path = Path(scores)
    return path.with_name(path.name.removesuffix(".json") + ".items.npz")


def write_scores(path: str | Path, results: Mapping[Any, Result], rows: list[dict]) -> None:
    """Write `scores.json` and `scores.items.npz` with the scores of every example."""
    items = {
        "|".join([*(result.rows[0][part] for part in Key._fields[:3]), name]): values
        for result in results.values()
        for name, values in result.items.items()
    }
    with writing(items_path(path)) as part, part.open("wb") as file:
        np.savez_compressed(file, **items)
    write_rows(path, rows)


def refuse_foreign(output: str | None, *names: str) -> None:
    """Raise BadInput if `--output` has content other than a JSON list of rows with these entries."""
    if output is None or not Path(output).is_file() or not Path(output).stat().st_size:
        return
    try:
        rows = read_json(Path(output), "rows", kind=list)
    except BadInput:
        rows = [None]
    if not all(isinstance(row, dict) and row.keys() >= {*names} for row in rows):
        raise BadInput(
            f"--output {output}: has content this command did not write; name another file"
        )


def has_scores(path: Path) -> bool:
    """Whether a run has scores; with `--test_tasks none` the file is missing or an empty list."""
    return path.is_file() and read_json(path, *_SCORES, kind=list) != []


def read_scores(path: Path) -> list[dict]:
    """The rows of a scores.json; BadInput with file and row if it is not one."""
    rows = read_json(path, *_SCORES, kind=list)
    if not rows:
        raise BadInput(f"{path}: contains no scores (--test_tasks none); {_SCORES[1]}")
    for number, row in enumerate(rows, 1):
        try:
            words = [row[name] for name in (*Key._fields, "aggregation")]
            if {*map(type, words)} != {str} or not (
                row["n"] >= 1 and abs(row["value"]) <= sys.float_info.max
            ):
                raise ValueError("expected texts, a positive 'n' and a finite 'value'")
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(
                f"{path}: row {number} is no score ({brief(error)}); {_SCORES[1]}"
            ) from error
    return rows


def read_items(scores: Path) -> dict[tuple[str, ...], dict[str, np.ndarray]]:
    """(task, split, mode) -> arrays, each (n,), from the file next to `scores`; empty if there is
    no file.

    Files of older versions have no `example`.

    Raises:
        BadInput: the file is damaged, or the arrays of a task are not 1-d, finite and of equal
            length.
    """
    path = items_path(scores)
    items: dict[tuple[str, ...], dict[str, np.ndarray]] = {}
    if not path.exists():
        return items
    try:
        with np.load(path, allow_pickle=False) as archive:
            for name in archive:
                *key, column = name.rsplit("|", 3)
                items.setdefault(tuple(key), {})[column] = archive[name].astype(np.float64)
        for key, arrays in items.items():
            sizes = {
                array.size if array.ndim == 1 and np.isfinite(array).all() else 0
                for array in arrays.values()
            }
            names = {"similarity", "gold"}, {"value", "example"}, {"value"}
            if set(arrays) not in names or len(sizes) > 1 or 0 in sizes:
                raise ValueError(f"the scores of {key[0]} are damaged")
    except Exception as error:  # zipfile, zlib and numpy raise a dozen classes for damaged files
        raise BadInput(f"{path}: cannot be read ({brief(error)}); score the model again") from error
    return items
