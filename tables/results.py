"""A table's rows of results: the paper's number, ours over the seeds, and what the one says of the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from eval.compare.published import published, records
from eval.compare.sides import Score, Side
from eval.compare.verdicts import ABOVE, BELOW, INSIDE, Interval, Line, compare
from eval.scores import Key
from tables import cells
from tables.plans import Cell, Choice, planned
from tables.scoring import averaged, can_be_filled, values
from tables.specification import Column, Row, Table

NOT_RUN, NOT_PRINTED = "not run", "not printed"
_MAXIMUM = "cannot say: a maximum"
_WORDS = {ABOVE: "above", BELOW: "below", INSIDE: "inside"}


def collect(table: Table, choice: Choice) -> list[dict[str, Any]]:
    """One JSON row for each figure of the table, in its order; `ours` is None where nothing was run."""
    return [found for row in table.rows for found in _row(table, row, choice)]


def _row(table: Table, row: Row, choice: Choice) -> Iterable[dict[str, Any]]:
    cell = planned(table, row, choice)
    runs = _runs(cell, choice) if isinstance(cell, Cell) else {}
    figures = {seed: _figures(folder, table.columns, choice) for seed, (folder, _) in runs.items()}
    theirs = records()[row.published] if row.published else None
    shared = {
        "table": table.name,
        "label": row.label,
        "published_record": row.published,
        "config": row.config,
        "overrides": row.overrides,
        "backbone": choice.backbone or row.backbone,
        "paper_backbone": row.backbone,
        "provenance": {seed: {"run": str(folder), **facts} for seed, (folder, facts) in runs.items()},
    }
    ours = {column.key: _summary(figures, column) for column in table.columns}
    known = {key: score for key, score in ours.items() if score}
    said = verdicts(known, theirs, cell.differs) if isinstance(cell, Cell) else {}
    missing = NOT_RUN if isinstance(cell, Cell) else cell
    for column in table.columns:
        score, printed = ours[column.key], theirs.scores.get(column.key) if theirs else None
        yield {
            **shared,
            "column": column.name,
            **column.key._asdict(),
            "statistic": column.statistic,
            **_of(printed, column, "published"),
            "misprint": row.misprints.get(column.name),
            "source": printed.source if printed else None,
            **_of(score, column, "ours"),
            "by_seed": {seed: found[column.key] for seed, found in figures.items() if column.key in found},
            "verdict": _MAXIMUM if score and column.statistic == "max" else said.get(column.key, missing),
        }


def _runs(cell: Cell, choice: Choice) -> dict[int, tuple]:
    """Seed -> folder and facts of every finished run, here or known."""
    found = {}
    for seed, folder in cell.folders(choice).items():
        if record := cell.finished(choice, seed):
            found[seed] = folder, cells.facts_of(record)
        elif folder.name in choice.known:
            found[seed] = folder, choice.known[folder.name].facts
    return found


def _figures(folder: Path, columns: Sequence[Column], choice: Choice) -> dict[Key, float]:
    if cells.finished(folder):
        return values(folder, columns)
    figures = choice.known[folder.name].figures
    return {column.key: figures[column.key] for column in columns if column.key in figures}


def is_known(folder: Path, choice: Choice, columns: Sequence[Column]) -> bool:
    """Whether a run that is not here need not be: every figure that it could get here is known."""
    if folder.name not in choice.known or cells.finished(folder):
        return False
    asked = {column.key for column in columns if can_be_filled(column.key, choice.data_dir)}
    return asked <= choice.known[folder.name].figures.keys()


def _summary(figures: dict[int, dict[Key, float]], column: Column) -> Score | None:
    """Mean and standard deviation (n - 1) over the runs that have the figure."""
    found = [one[column.key] for one in figures.values() if column.key in one]
    if not found:
        return None
    std = float(np.std(found, ddof=1)) if len(found) > 1 else None
    return Score(float(np.mean(found)), len(found), std, min(found), max(found))


def _of(score: Score | None, column: Column, name: str) -> dict[str, Any]:
    if score is None:
        return {name: None, f"{name}_std": None, f"{name}_runs": 0}
    if column.statistic == "max":
        return {name: score.high, f"{name}_std": None, f"{name}_runs": score.runs}
    return {name: score.mean, f"{name}_std": score.std, f"{name}_runs": score.runs}


def verdicts(ours: dict[Key, Score], theirs: Side | None, differs: Sequence[str]) -> dict[Key, str]:
    """In words, for every figure: inside, above, below (95 % of what is known to differ from seed to seed), or why not.

    Runs that are not of the paper's setting are not judged at all; a published single run is judged by the record
    that shows how its method spreads, where there is one.

    Args:
        ours: what was run.
        theirs: the paper's record, None where it prints nothing.
        differs: what sets the runs apart from the paper's.
    """
    said = dict.fromkeys(ours, NOT_PRINTED)
    shared = [key for key in ours if theirs and key in theirs.scores]
    if differs:
        said |= dict.fromkeys(shared, f"not comparable: {', '.join(differs)}")
    elif shared:
        said |= _judged({key: ours[key] for key in shared}, theirs)
    return said


def _judged(ours: dict[Key, Score], theirs: Side) -> dict[Key, str]:
    keys = tuple(ours)
    sets = {key[1:]: averaged(key) for key in keys if averaged(key)}
    mine = Side("ours", ours, keys, sets)
    printed = replace(theirs, scores={key: theirs.scores[key] for key in keys}, headline=keys)
    said: dict[Key, str] = {}
    for line in compare(mine, printed, record=published):
        if line.key not in said or isinstance(line.found, Interval):
            said[line.key] = _words(line, theirs.note)
    return said


def _words(line: Line, note: str | None) -> str:
    """The verdict, and what it was judged by where that is not the figure the page shows."""
    if isinstance(line.found, str):
        return line.found
    if line.against:
        return f"{_WORDS[line.verdict]} {line.b} of {line.against}"
    return _WORDS[line.verdict] + (f" ({note})" if note else "")
