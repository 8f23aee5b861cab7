"""Scores of several runs side by side, with 95 % intervals over the test examples and the best of each row.

The intervals are those of the bootstrap of `python -m eval.compare`: all runs are resampled at the same examples, so
differences between resampled scores of two runs give its paired bootstrap.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eval.compare.intervals import RESAMPLES, SEED, mean_of_tasks, percentile, resampled, same_examples
from eval.compare.sides import unlike
from eval.dev import IS, judged
from eval.scores import AVERAGE, Key
from report.runs import RunFolder

BEST, TIED = "best", "≈ best"


@dataclass(frozen=True)
class Cell:
    """One score x 100.

    Attributes:
        value: the score.
        interval: 95 % over the test examples; None without per-example scores.
        mark: `BEST` for the highest of its row, `TIED` if the interval of the difference to it contains 0.
        gain: the difference to the first run, the baseline; None for that run and if they are not comparable.
        gain_interval: 95 % interval of the gain; None without per-example scores of both runs.
    """

    value: float
    interval: tuple[float, float] | None
    mark: str
    gain: float | None = None
    gain_interval: tuple[float, float] | None = None

    @property
    def verdict(self) -> str:
        """The gain in one word; "" without an interval."""
        return "" if self.gain_interval is None else judged(*self.gain_interval)


@dataclass(frozen=True)
class Row:
    """One task: a cell for each run, None without a score; `comparable` if all scores use the same examples."""

    key: Key
    cells: list[Cell | None]
    comparable: bool


def score_rows(runs: Sequence[RunFolder], resamples: int = RESAMPLES, seed: int = SEED) -> list[Row]:
    """A row for every headline score of the runs, averages last."""
    keys = list(dict.fromkeys(key for run in runs if run.scores for key in run.scores.headline))
    keys.sort(key=lambda key: key.task == AVERAGE)
    drawn = [_drawn(run, resamples, seed) for run in runs]
    return [_row(key, runs, [by_key.get(key) for by_key in drawn]) for key in keys]


def _drawn(run: RunFolder, resamples: int, seed: int) -> dict[Key, np.ndarray]:
    """The resampled scores of every key that has examples."""
    side, drawn = run.scores, {}
    for key in sorted(side.headline, key=lambda key: key.task == AVERAGE) if side else ():
        average = key.task == AVERAGE
        drawn[key] = mean_of_tasks(drawn, key, side) if average else resampled(side, run.items, key, resamples, seed)
    return {key: figures for key, figures in drawn.items() if not isinstance(figures, str)}


def _row(key: Key, runs: Sequence[RunFolder], drawn: list[np.ndarray | None]) -> Row:
    scores = [run.scores.scores.get(key) if run.scores else None for run in runs]
    values = [-np.inf if score is None else score.mean for score in scores]
    best = int(np.argmax(values))
    comparable = _comparable(key, [run for run, score in zip(runs, scores, strict=True) if score])
    cells: list[Cell | None] = []
    for number, (score, figures) in enumerate(zip(scores, drawn, strict=True)):
        if score is None:
            cells.append(None)
            continue
        mark = ""
        if comparable and np.isfinite(values).sum() > 1:
            mark = BEST if number == best else TIED if _tied(drawn[best], figures) else ""
        gain = score.mean - scores[0].mean if number and scores[0] and comparable else None
        both = gain is not None and drawn[0] is not None and figures is not None
        interval = None if figures is None else percentile(figures)
        gain_interval = percentile(figures - drawn[0]) if both else None
        cells.append(Cell(score.mean, interval, mark, gain, gain_interval))
    return Row(key, cells, comparable)


def headline(labels: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """A sentence comparing every other run with the first, by the first shared average or, failing that, score."""
    sentences = []
    for number, label in enumerate(labels[1:], 1):
        both = [row for row in rows if (cell := row.cells[number]) and cell.gain is not None]
        for row in sorted(both, key=lambda row: row.key.task != AVERAGE)[:1]:
            sentences.append(_sentence(label, labels[0], row.key, row.cells[number]))
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


def _sentence(label: str, baseline: str, key: Key, cell: Cell) -> str:
    interval = "no interval without per-example scores"
    if cell.gain_interval:
        interval = "95 % interval {:+.2f} to {:+.2f}".format(*cell.gain_interval)
    figures = f"{cell.value - cell.gain:.2f} -> {cell.value:.2f} ({cell.gain:+.2f}, {interval})"
    return f"{label} {IS.get(cell.verdict, 'compared with')} {baseline}: {key} {figures}"


def _tied(best: np.ndarray | None, other: np.ndarray | None) -> bool:
    return best is not None and other is not None and percentile(best - other)[0] <= 0


def _comparable(key: Key, runs: Sequence[RunFolder]) -> bool:
    """Whether the scores of a row use the same protocol and examples, as far as the files show."""
    if key.task == AVERAGE:
        sets = {run.scores.averaged[key[1:]] for run in runs}
        tasks = [Key(task, *key[1:]) for task in next(iter(sets))]
        return len(sets) == 1 and all(_comparable(task, runs) for task in tasks)
    scores = [run.scores.scores[key] for run in runs]
    if len({(score.examples, score.protocol) for score in scores}) > 1:
        return False
    present = [items for run in runs if (items := run.items.get(key[:3]))]
    return all(same_examples(present[0], items) for items in present)
