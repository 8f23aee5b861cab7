"""A table's rows of results: the paper's figure, ours over the seeds, and how they compare."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval.compare.intervals import ABOVE, BELOW, INSIDE, Interval, Line, compare
from eval.compare.sides import Score, Side, records
from eval.scores import Key
from papers import runs
from papers.plans import Choice, RunPlan, plan_of
from papers.specification import Column, Table, TableRow
from papers.tasks import averaged, can_be_filled, figures_of

NOT_RUN, NOT_PRINTED = "not run", "not printed"
_MAXIMUM = "cannot say: a maximum"
_WORDS = {ABOVE: "above", BELOW: "below", INSIDE: "inside"}


def collect(table: Table, choice: Choice) -> list[dict[str, Any]]:
    """One JSON row per figure of the table, in its order; `ours` is None without a run."""
    return [one for row in table.rows for one in _row(table, row, choice)]


def _row(table: Table, row: TableRow, choice: Choice) -> Iterable[dict[str, Any]]:
    plan = plan_of(table, row, choice)
    made = _runs(plan, choice) if isinstance(plan, RunPlan) else {}
    figures = {seed: _figures(folder, table.columns, choice) for seed, (folder, _) in made.items()}
    theirs = records()[row.published] if row.published else None
    shared = {
        "table": table.name,
        "label": row.label,
        "published_record": row.published,
        "config": row.config,
        "overrides": row.overrides,
        "backbone": choice.backbone or row.backbone,
        "paper_backbone": row.backbone,
        "provenance": {seed: {"run": str(folder), **facts} for seed, (folder, facts) in made.items()},
    }
    ours = {column.key: _summary(figures, column) for column in table.columns}
    scored = {key: score for key, score in ours.items() if score}
    judged = verdicts(scored, theirs, plan.differences) if isinstance(plan, RunPlan) else {}
    missing = NOT_RUN if isinstance(plan, RunPlan) else plan
    for column in table.columns:
        score, printed = ours[column.key], theirs.scores.get(column.key) if theirs else None
        yield {
            **shared,
            "column": column.name,
            **column.key._asdict(),
            "statistic": column.statistic,
            **_fields(printed, column, "published"),
            "misprint": row.misprints.get(column.name),
            "source": printed.source if printed else None,
            **_fields(score, column, "ours"),
            "by_seed": {seed: found[column.key] for seed, found in figures.items() if column.key in found},
            "verdict": _MAXIMUM if score and column.statistic == "max" else judged.get(column.key, missing),
        }


def _runs(plan: RunPlan, choice: Choice) -> dict[int, tuple[Path, dict[str, Any]]]:
    """Seed -> folder and facts of every finished run, local or imported."""
    finished = {}
    for seed, folder in plan.folders(choice).items():
        if record := plan.finished(choice, seed):
            finished[seed] = folder, runs.facts_of(record)
        elif folder.name in choice.imported:
            finished[seed] = folder, choice.imported[folder.name].facts
    return finished


def _figures(folder: Path, columns: Sequence[Column], choice: Choice) -> dict[Key, float]:
    if runs.finished(folder):
        return figures_of(folder, columns)
    figures = choice.imported[folder.name].figures
    return {column.key: figures[column.key] for column in columns if column.key in figures}


def is_imported(folder: Path, choice: Choice, columns: Sequence[Column]) -> bool:
    """Whether a run has no local folder and every figure that could be computed here is imported."""
    if folder.name not in choice.imported or runs.finished(folder):
        return False
    fillable = {column.key for column in columns if can_be_filled(column.key, choice.data_dir)}
    return fillable <= choice.imported[folder.name].figures.keys()


def _summary(figures: dict[int, dict[Key, float]], column: Column) -> Score | None:
    """The score over the runs that have the figure."""
    values = [one[column.key] for one in figures.values() if column.key in one]
    return Score.over(values, low=min(values), high=max(values)) if values else None


def _fields(score: Score | None, column: Column, name: str) -> dict[str, Any]:
    if score is None:
        return {name: None, f"{name}_std": None, f"{name}_runs": 0}
    if column.statistic == "max":
        return {name: score.high, f"{name}_std": None, f"{name}_runs": score.runs}
    return {name: score.mean, f"{name}_std": score.std, f"{name}_runs": score.runs}


def verdicts(ours: dict[Key, Score], theirs: Side | None, differences: Sequence[str]) -> dict[Key, str]:
    """For every figure: inside, above or below the 95 % interval over seeds, or why it cannot be judged.

    Runs that differ from the paper's are not judged. A published single run is judged by the record of its method's
    spread, if there is one.
    """
    result = dict.fromkeys(ours, NOT_PRINTED)
    shared = [key for key in ours if theirs and key in theirs.scores]
    if differences:
        result |= dict.fromkeys(shared, f"not comparable: {', '.join(differences)}")
    elif shared:
        result |= _judged({key: ours[key] for key in shared}, theirs)
    return result


def _judged(ours: dict[Key, Score], theirs: Side) -> dict[Key, str]:
    keys = tuple(ours)
    sets = {key[1:]: averaged(key) for key in keys if averaged(key)}
    mine = Side("ours", ours, keys, sets)
    printed = replace(theirs, scores={key: theirs.scores[key] for key in keys}, headline=keys)
    result: dict[Key, str] = {}
    for line in compare(mine, printed):
        if line.key not in result or isinstance(line.outcome, Interval):
            result[line.key] = _verdict(line, theirs.note)
    return result


def _verdict(line: Line, note: str | None) -> str:
    """The verdict, and its reference if that is not the figure on the page."""
    if isinstance(line.outcome, str):
        return line.outcome
    if line.against:
        return f"{_WORDS[line.verdict]} {line.b} of {line.against}"
    return _WORDS[line.verdict] + (f" ({note})" if note else "")
