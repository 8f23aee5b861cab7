"""What is compared: the figures of one side, read from files of scores and the examples' figures beside them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from common.errors import BadInput
from eval.report import headline, items_path

AVERAGE = "Avg."


class Key(NamedTuple):
    """What two figures must share to be compared."""

    task: str
    split: str
    mode: str
    metric: str

    def __str__(self) -> str:
        """The task, and after it whatever is not STS's usual split, mode and metric."""
        unusual = [word for word, usual in zip(self[1:], ("test", "test", "spearman"), strict=True) if word != usual]
        return " ".join([self.task, *unusual])


@dataclass(frozen=True)
class Score:
    """One figure, x 100.

    Attributes:
        mean: over the runs.
        runs: how many.
        std: over the runs, with n - 1; None where there is one run or nobody says.
        low, high: the worst and the best run, where published.
        examples: pairs, sentences or queries behind it; None where nobody says.
        source: where it is printed; "" for our own files.
        protocol: `aggregation` of our own rows; None where nobody says.
    """

    mean: float
    runs: int = 1
    std: float | None = None
    low: float | None = None
    high: float | None = None
    examples: int | None = None
    source: str = ""
    protocol: str | None = None

    def __str__(self) -> str:
        if self.std is None:
            return f"{self.mean:.2f}"
        extent = "" if self.low is None or self.high is None else f", {self.low:.2f} to {self.high:.2f}"
        return f"{self.mean:.2f} ± {self.std:.2f} (n = {self.runs}{extent})"


@dataclass(frozen=True)
class Side:
    """One of the two things compared.

    Attributes:
        label: as the user wrote it.
        scores: the figures; where a file has several of one key, the headline.
        headline: the keys that are shown.
        averaged: (split, mode, metric) -> the tasks behind its `Avg.`.
        file: the file of scores where the side is exactly one; only then can examples be resampled.
        published: printed by others.
        backbone: of a published record.
        spread: the id of the record that shows how runs of the same published method spread.
        note: for the reader.
    """

    label: str
    scores: dict[Key, Score]
    headline: tuple[Key, ...]
    averaged: dict[tuple[str, ...], frozenset[str]]
    file: Path | None = None
    published: bool = False
    backbone: str | None = None
    spread: str | None = None
    note: str | None = None


def from_files(label: str, paths: Sequence[Path]) -> Side:
    """One side out of one file a run: mean and standard deviation over the files.

    Raises:
        BadInput: a file that is no file of scores, a file given twice, files with different tasks or examples.
    """
    files = [_rows_by_key(path) for path in paths]
    first, shown = files[0]
    for i, path in enumerate(paths):
        if path.resolve() in {other.resolve() for other in paths[:i]}:
            raise BadInput(f"{path}: given twice on one side; a run counts once")
        rows, keys = files[i]
        different = set(shown) ^ set(keys) or {key for key in keys if rows[key]["n"] != first[key]["n"]}
        if different:
            raise BadInput(f"{path}: {min(different)} is not as in {paths[0]} (rows, examples); score all runs alike")
    everywhere = [key for key in first if all(key in rows for rows, _ in files)]
    scores = {key: _over_runs([rows[key] for rows, _ in files]) for key in everywhere}
    sets: dict[tuple[str, ...], set[str]] = {}
    for key in shown:
        sets.setdefault(key[1:], set()).update({key.task} - {AVERAGE})
    averaged = {kind: frozenset(tasks) for kind, tasks in sets.items()}
    return Side(label, scores, tuple(shown), averaged, paths[0] if len(paths) == 1 else None)


def _over_runs(rows: list[dict]) -> Score:
    values = [row["value"] for row in rows]
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    protocols = {row.get("aggregation") for row in rows}
    protocol = protocols.pop() if len(protocols) == 1 else " and ".join(sorted(map(str, protocols)))
    return Score(float(np.mean(values)), len(values), std, examples=rows[0]["n"], protocol=protocol)


def _rows_by_key(path: Path) -> tuple[dict[Key, dict], list[Key]]:
    """Rows by key, and the keys of headline rows; other rows only where their key is theirs alone."""
    rows = read_scores(path)
    shown: dict[Key, dict] = {}
    for row in headline(rows):
        key = Key(*(row[name] for name in Key._fields))
        if key in shown:
            raise BadInput(f"{path}: two rows for {key}; each task counts once")
        shown[key] = row
    others: dict[Key, list[dict]] = {}
    for row in rows:
        others.setdefault(Key(*(row[name] for name in Key._fields)), []).append(row)
    alone = {key: found[0] for key, found in others.items() if len(found) == 1}
    return {**alone, **shown}, list(shown)


def read_scores(path: Path) -> list[dict]:
    """Rows of a `scores.json`; BadInput with the file and the reason if it is none."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}); `python -m eval --output` writes it") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: no JSON ({' '.join(str(error).split())})") from error
    if rows == []:
        raise BadInput(f"{path}: holds no scores (--test_tasks none); `python -m eval MODEL --output` writes some")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"{path}: a list of rows is needed, as `python -m eval --output` writes it")
    for number, row in enumerate(rows, 1):
        problem = _problem(row)
        if problem:
            raise BadInput(f"{path}: row {number} {problem}; `python -m eval --output` writes such files")
    return rows


def _problem(row: dict) -> str | None:
    for name in Key._fields:
        if not isinstance(row.get(name), str):
            return f"has no word as '{name}'"
    if not isinstance(row.get("aggregation", ""), str):
        return "has no word as 'aggregation'"
    if type(row.get("n")) is not int or row["n"] < 1:
        return "has no number of examples 'n'"
    if not is_finite(row.get("value")):
        return f"has the value {row.get('value')}, which is no finite number"
    return None


def is_finite(value: Any) -> bool:
    """Whether a value of a file is a number that float64 holds; true and false are none."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def read_items(scores: Path) -> dict[tuple[str, ...], dict[str, np.ndarray]]:
    """(task, split, mode) -> its arrays, each (n,), from the file beside `scores`; nothing where there is none.

    Raises:
        BadInput: the file is damaged, or an array is not one-dimensional, finite and as long as its companions.
    """
    path = items_path(scores)
    found: dict[tuple[str, ...], dict[str, np.ndarray]] = {}
    if not path.exists():
        return found
    try:
        with np.load(path, allow_pickle=False) as archive:
            for name in archive:
                *key, kind = name.rsplit("|", 3)
                found.setdefault(tuple(key), {})[kind] = archive[name].astype(np.float64)
    except Exception as error:  # zipfile, zlib and numpy raise a dozen classes for damaged files
        raise BadInput(f"{path}: cannot be read ({' '.join(str(error).split())}); score the model again") from error
    for key, arrays in found.items():
        whole = all(array.ndim == 1 and array.size and np.isfinite(array).all() for array in arrays.values())
        alike = len({len(array) for array in arrays.values()}) == 1 if whole else False
        if not alike or set(arrays) not in ({"similarity", "gold"}, {"value"}):
            raise BadInput(f"{path}: the figures of {key[0]} are damaged; score the model again")
    return found
