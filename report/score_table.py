"""Scores of several runs side by side, each compared with the first run as `python -m eval.compare` does."""

from collections.abc import Sequence
from dataclasses import dataclass

from eval.compare.intervals import Interval, Line, compare
from eval.compare.sides import unlike
from eval.dev import IS, judged
from eval.scores import AVERAGE, Key
from report.runs import RunFolder


@dataclass(frozen=True)
class Cell:
    """One score x 100, and the line of its comparison with the first run; None for that run, or if it has no score."""

    value: float
    line: Line | None = None

    @property
    def range(self) -> tuple[float, float] | None:
        """The 95 % interval of the difference, if there is one."""
        outcome = self.line.outcome
        return (outcome.low, outcome.high) if isinstance(outcome, Interval) else None

    @property
    def verdict(self) -> str:
        """What the comparison says in words, or why it says nothing."""
        return judged(*self.range) if self.range else self.line.outcome


def score_rows(runs: Sequence[RunFolder]) -> list[tuple[Key, list[Cell | None]]]:
    """For every headline score a cell of each run, None without a score; averages last."""
    sides = [run.scores for run in runs]
    keys = list(dict.fromkeys(key for side in sides if side for key in side.headline))
    keys.sort(key=lambda key: key.task == AVERAGE)
    first, columns = sides[0], []
    for number, side in enumerate(sides):
        lines = (
            {line.key: line for line in compare(side, first)} if number and side and first else {}
        )
        columns.append(
            {key: Cell(side.scores[key].mean, lines.get(key)) for key in side.headline}
            if side
            else {}
        )
    return [(key, [column.get(key) for column in columns]) for key in keys]


def headline(labels: Sequence[str], rows: Sequence[tuple[Key, list[Cell | None]]]) -> list[str]:
    """A sentence comparing every other run with the first, by the first shared average or, failing that, score."""
    sentences = []
    for number, label in enumerate(labels[1:], 1):
        both = [(key, cells) for key, cells in rows if cells[0] and cells[number]]
        for key, cells in sorted(both, key=lambda row: row[0].task != AVERAGE)[:1]:
            first, cell = cells[0].value, cells[number]
            reason = (
                "95 % interval {:+.2f} to {:+.2f}".format(*cell.range)
                if cell.range
                else cell.verdict
            )
            figures = f"{first:.2f} -> {cell.value:.2f} ({cell.value - first:+.2f}, {reason})"
            sentences.append(
                f"{label} {IS.get(cell.verdict, 'compared with')} {labels[0]}: {key} {figures}"
            )
    return sentences


def scored_differently(runs: Sequence[RunFolder]) -> list[str]:
    """A sentence for every other run whose encoder was scored with other settings than the first run's."""
    first, *others = runs
    sentences = []
    for run in others if first.scores else ():
        if differing := unlike(first.scores.settings, run.scores.settings) if run.scores else []:
            named = ", ".join(f"{name} {ours} and {theirs}" for name, ours, theirs in differing)
            sentences.append(f"{first.label} and {run.label} were scored differently: {named}")
    return sentences
