"""scores.json: its rows, the per-example scores in the file next to it, and the printed tables."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.errors import BadInput, brief
from common.files import digest, read_json, writing
from common.streams import visible

AVERAGE = "Avg."
_SCORES = "a scores file", "`python -m eval --output` writes one"
BEGINNING = b'[\n{"task": '  # of a file of rows


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
        words = [self.task]
        for word, default in zip(self[1:], ("test", "test", "spearman"), strict=True):
            if word != default:
                words.append(word)
        return " ".join(words)


@dataclass(frozen=True)
class Result:
    """The scores of one task.

    Attributes:
        rows: rows of scores.json, the headline first; a table has it and those that are `shown`.
        items: examples for a paired comparison: `similarity` and `gold` of every pair, or `value`
            from 0 to 1 and `example`, see `example_ids`, of every query or sentence, each (n,).
    """

    rows: list[dict[str, Any]]
    items: dict[str, np.ndarray] = field(default_factory=dict)


def example_ids(examples: Iterable[object]) -> np.ndarray:
    """A number for the content of each example, (n,).

    Two files with other numbers were scored on other data.
    """
    return np.array([zlib.crc32(repr(example).encode()) for example in examples], dtype=np.float64)


def row(
    task: str, split: str, metric: str, aggregation: str, n: int, value: float, mode: str = "test"
) -> dict:
    """One row of scores.json, without model and run."""
    names = {"task": task, "split": split, "mode": mode, "metric": metric}
    return {**names, "aggregation": aggregation, "n": n, "value": float(value)}


def average(rows: list[dict]) -> dict:
    """The papers' average of headline rows: of the values, each first rounded to two decimals."""
    mean = sum(round(row["value"], 2) for row in rows) / len(rows)
    count = sum(row["n"] for row in rows)
    averaged = {**rows[0], "task": AVERAGE, "aggregation": "mean of tasks", "n": count}
    if data := sorted(row["data"] for row in rows if "data" in row):
        averaged["data"] = digest(data)
    return {**averaged, "value": mean}


def rows_of(
    results: Mapping[Any, Result], model: str, run: str | None, **settings: Any
) -> list[dict]:
    """All rows with model, run and the encoder's settings, unless a row has its own.

    `headline` marks main figures and averages. Headline rows with the same metric, split and mode
    are averaged.
    """
    rows: list[dict] = []
    for result in results.values():
        for number, scored in enumerate(result.rows):
            rows.append({**scored, "headline": number == 0})
    alike: dict[tuple, list[dict]] = {}
    for scored in headline(rows):
        alike.setdefault((scored["metric"], scored["split"], scored["mode"]), []).append(scored)
    rows += [average(group) for group in alike.values() if len(group) > 1]
    return [{**scored, "model": model, "run": run, **settings, **scored} for scored in rows]


def headline(rows: list[dict]) -> list[dict]:
    """The rows that count in averages and comparisons."""
    return [row for row in rows if row.get("headline", True)]


def score_tables(rows_by_model: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Markdown tables with two decimals: a line per model, a column per figure.

    One table per kind of metric, with titles if there are several; `recall@1` and `recall@5` are
    one kind. `missing` stands for no score.
    """
    kinds: dict[str, dict[str, dict[Key, float]]] = {}  # kind -> model -> figures
    for model, rows in rows_by_model.items():
        for scored in rows:
            if scored.get("shown", scored.get("headline", True)):
                key = Key.of(scored)
                of_kind = kinds.setdefault(key.metric.partition("@")[0], {})
                of_kind.setdefault(model, {})[key] = scored["value"]
    parts = []
    for kind, of_kind in kinds.items():
        keys = list(dict.fromkeys(chain.from_iterable(of_kind.values())))
        lines = [["model", *(_title(key, keys) for key in keys)]]
        for model in rows_by_model:
            figures = of_kind.get(model, {})
            cells = [f"{figures[key]:.2f}" if key in figures else "missing" for key in keys]
            lines.append([model, *cells])
        metrics = {key.metric for key in keys}
        title = metrics.pop() if len(metrics) == 1 else kind
        table = markdown(lines)
        parts.append(f"{title}\n{table}" if len(kinds) > 1 else table)
    return "\n\n".join(parts)


def _title(key: Key, keys: Sequence[Key]) -> str:
    """The title of a column.

    It names the split, mode or metric if its task's columns differ in it, and always a dev split
    and fasttest.
    """
    words = []
    for name in Key._fields[1:]:
        word = getattr(key, name)
        of_task = {getattr(other, name) for other in keys if other.task == key.task}
        if len(of_task) > 1 or (name != "metric" and word not in ("test", "file")):
            words.append(word)
    return " ".join([key.task, *dict.fromkeys(words)])


def markdown(lines: Iterable[Iterable[str]]) -> str:
    """An aligned Markdown table; the first line of cells is the header."""
    cells = [[visible(cell).replace("|", "\\|") for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    written = []
    for line in cells:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        written.append(f"| {' | '.join(padded)} |")
    rule = "|".join("-" * (width + 2) for width in widths)
    return "\n".join([written[0], f"|{rule}|", *written[1:]])


def write_rows(path: str | Path, rows: list[dict]) -> None:
    """Write rows as a JSON list, one object per line."""
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
    items = {}
    for result in results.values():
        task, split, mode, _ = Key.of(result.rows[0])
        for name, values in result.items.items():
            items[f"{task}|{split}|{mode}|{name}"] = values
    with writing(items_path(path)) as part, part.open("wb") as file:
        np.savez_compressed(file, **items)  # type: ignore[arg-type]  # numpy's stub: bool
    write_rows(path, rows)


def has_scores(path: Path) -> bool:
    """Whether a run has scores; with `--test_tasks none` the file is missing or an empty list."""
    return path.is_file() and read_json(path, *_SCORES, kind=list) != []


def scores_of(folder: Path) -> Path:
    """The scores file of a run: scores.json or, if it has no rows, own.json if that is there.

    A run with `--test_tasks none` has an empty one; docs/own_text.md scores such a run afterwards.
    """
    first, own = folder / "scores.json", folder / "own.json"
    return own if own.is_file() and not has_scores(first) else first


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
    """(task, split, mode) -> arrays, each (n,), from the file next to `scores`, if there is one.

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
            names = {"similarity", "gold"}, {"value", "example"}
            if set(arrays) not in names or len(sizes) > 1 or 0 in sizes:
                raise ValueError(f"the scores of {key[0]} are damaged")
    except Exception as error:  # zipfile, zlib and numpy raise a dozen classes for damaged files
        raise BadInput(f"{path}: cannot be read ({brief(error)}); score the model again") from error
    return items
