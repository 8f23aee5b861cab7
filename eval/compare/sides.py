"""The two sides of a comparison: figures over runs, read from one or several scores.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.errors import BadInput
from eval.scores import AVERAGE, Key, headline, read_scores


@dataclass(frozen=True)
class Score:
    """One figure, x 100.

    Attributes:
        mean: over the runs.
        runs: how many.
        std: over the runs, with n - 1; None for one run or where not published.
        low, high: the worst and the best run, where published.
        examples: how many pairs, sentences or queries; None where not published.
        source: where it is printed; "" for our own files.
        protocol: `aggregation` of our own rows; None for published figures.
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
    """A side from scores.json files, one per run: mean and standard deviation over the files.

    Raises:
        BadInput: a file that is not a scores.json, a file given twice, files with different tasks or examples.
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
    """Rows by key, and the keys of headline rows; of other rows only those with a unique key."""
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
