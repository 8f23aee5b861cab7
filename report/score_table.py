"""Scores of several runs side by side, each compared with the first as by `eval.compare`."""

from collections.abc import Sequence
from dataclasses import dataclass

from eval.compare.intervals import Interval, Line, compare
from eval.compare.sides import Side, unlike
from eval.dev import IS, judged
from eval.scores import AVERAGE, Key
from report.runs import RunFolder


@dataclass(frozen=True)
class Cell:
    """One score x 100, and the line of its comparison with the first run, if it has one there."""

    value: float
    line: Line | None = None

    @property
    def range(self) -> tuple[float, float] | None:
        """The 95 % interval of the difference, if there is one."""
        outcome = self.line.outcome if self.line else None
        return (outcome.low, outcome.high) if isinstance(outcome, Interval) else None

    @property
    def verdict(self) -> str:
        """What the comparison says in words, or why it says nothing."""
        if self.range:
            return judged(*self.range)
        return self.line.verdict if self.line else ""


def score_rows(runs: Sequence[RunFolder]) -> list[tuple[Key, list[Cell | None]]]:
    """For every headline score a cell of each run, None without a score; averages last."""
    columns = [_column(run.scores, runs[0].scores) for run in runs]
    keys: list[Key] = []
    for column in columns:
        keys += column
    in_order = sorted(dict.fromkeys(keys), key=lambda key: key.task == AVERAGE)
    return [(key, [column.get(key) for column in columns]) for key in in_order]


def _column(scores: Side | None, first: Side | None) -> dict[Key, Cell]:
    """The cells of a run, compared with those of the first run."""
    if scores is None:
        return {}
    lines = {}
    if first and scores is not first:
        lines = {line.key: line for line in compare(scores, first)}
    return {key: Cell(scores.scores[key].mean, lines.get(key)) for key in scores.headline}


def headline(labels: Sequence[str], rows: Sequence[tuple[Key, list[Cell | None]]]) -> list[str]:
    """A sentence comparing every other run with the first.

    By the first average that both have or, failing that, the first score.
    """
    sentences = []
    averages_first = sorted(rows, key=lambda row: row[0].task != AVERAGE)
    for number, label in enumerate(labels[1:], 1):
        for key, cells in averages_first:
            first, cell = cells[0], cells[number]
            if first and cell:
                sentences.append(_sentence(label, labels[0], key, cell, first.value))
                break
    return sentences


def _sentence(label: str, baseline: str, key: Key, cell: Cell, first: float) -> str:
    verb = IS.get(cell.verdict, "compared with")
    reason = cell.verdict
    if cell.range:
        low, high = cell.range
        reason = f"95 % interval {low:+.2f} to {high:+.2f}"
    change = f"{first:.2f} -> {cell.value:.2f} ({cell.value - first:+.2f}, {reason})"
    return f"{label} {verb} {baseline}: {key} {change}"


def scored_differently(runs: Sequence[RunFolder]) -> list[str]:
    """A sentence for every run that was scored with other settings than the first."""
    first, *others = runs
    sentences = []
    for run in others:
        if first.scores and run.scores:
            if named := unlike(first.scores.settings, run.scores.settings):
                runs_named = f"{first.label} and {run.label}"
                sentences.append(f"{runs_named} were scored differently: {', '.join(named)}")
    return sentences
