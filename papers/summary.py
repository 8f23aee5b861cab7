"""Pages whose words and numbers are computed from the JSON files of results/.

A file of papers/templates is such a page in Jinja's syntax, with `r`, a `Results`, for its numbers:
results.md is the README of results/, root.md a part of the README above it. Words that compare
are readings, see `papers.differences`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from common.files import read_json, writing
from eval.compare.sides import records
from eval.published import __main__ as published
from eval.scores import AVERAGE, Key, markdown
from papers import gradients, study
from papers.differences import COLUMNS, Difference, described, holm, in_words, over_seeds
from papers.page import mean_and_deviation, rewritten, with_deviation
from papers.study_page import TITLES, Comparison, compared, figures_of, tuned, with_levels
from training.curves import CLEAR

MADE = {"device", "machine", "part", "threads", "torch", "command", "commit", "transcribed"}
TEMPLATES = Path(__file__).parent / "templates"


class Results:
    """The numbers of a folder of results, as words of a page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of a JSON file."""
        return read_json(self.folder / f"{name}.json", "results", kind=list)

    def row(self, file: str, /, **values: Any) -> dict[str, Any]:
        """The one row of a JSON file with these values."""
        [found] = [row for row in self.rows(file) if values.items() <= row.items()]
        return found

    def mean(self, name: str, column: str, levels: Mapping[str, str]) -> str:
        """Mean and standard deviation of a study's runs with these levels."""
        runs = with_levels(figures_of(self.rows(name)), levels)
        return mean_and_deviation(runs[column], "-")

    def tuned(self, name: str, level: str, column: str) -> str:
        """As `mean`, of a level with its best level of the second factor."""
        content = study.read(name)
        [cells] = tuned(content, figures_of(self.rows(name)))
        [line] = [line for line in cells if line[0] == level]
        return line[cells[0].index(TITLES[column])]

    def compared(self, name: str, column: str) -> list[tuple[Comparison, float]]:
        """All comparisons of a study in one column, with their adjusted p."""
        found = compared(study.read(name), figures_of(self.rows(name)))
        return [(one, p) for one, p in found if one.name == column]

    def line(
        self, label: str, name: str, column: str, arm: str, at: str = "", minus: str = ""
    ) -> str:
        """A line of a table: a comparison of a study under another name."""
        one, p = self._one(name, column, arm, at, minus)
        return f"| {label} | {' | '.join(described(one.difference, p))} |"

    def difference(self, name: str, column: str, arm: str, at: str = "", minus: str = "") -> str:
        """A comparison of a study in a sentence: what it shows, and its numbers."""
        one, p = self._one(name, column, arm, at, minus)
        return sentence(one.difference, p)

    def _one(
        self, name: str, column: str, arm: str, at: str, minus: str
    ) -> tuple[Comparison, float]:
        [found] = [
            (one, p)
            for one, p in self.compared(name, column)
            if one.arm == arm and at in ("", one.at) and minus in ("", one.against)
        ]
        return found

    def readings(self, name: str, column: str) -> Counter[str]:
        """How many comparisons of a study have each reading."""
        return Counter(in_words(one.difference, p) for one, p in self.compared(name, column))

    def published(self, record: str) -> str:
        """The STS average of a published record."""
        return f"{records()[record].scores[Key(AVERAGE, 'test', 'test', 'spearman')].mean:.2f}"

    def cell(self, table: str, label: str, column: str = "") -> str:
        """One of our figures in a paper's table; its last column by default."""
        row = self._row(table, label, column)
        return with_deviation(row["ours"], row["ours_std"])

    def printed(self, table: str, label: str) -> str:
        """The paper's figure in the last column of its table."""
        return f"{self._row(table, label, '')['published']:.2f}"

    def cells(self, table: str, labels: Mapping[str, str], column: str = "") -> str:
        """Several of our figures, by the names that the page gives the rows."""
        shown = [f"{name} {self.cell(table, label, column)}" for name, label in labels.items()]
        return ", ".join(shown)

    def spread(self, table: str) -> str:
        """The largest of our figures in the last column minus the smallest."""
        ours = self._last_column(table)
        return f"{max(ours.values()) - min(ours.values()):.2f}"

    def best(self, table: str) -> str:
        """The row with our highest figure in the last column."""
        ours = self._last_column(table)
        return max(ours, key=ours.__getitem__)

    def _last_column(self, table: str) -> dict[str, float]:
        rows = self._table(table)
        last = [row for row in rows if row["column"] == rows[-1]["column"]]
        return {row["label"]: row["ours"] for row in last if row["ours"] is not None}

    def versus(self, table: str, pairs: Mapping[str, Sequence[str]], column: str = "") -> str:
        """Rows of a paper's table minus others, in pairs by seed, p adjusted over them all."""
        differences = []
        for label, other in pairs.values():
            sides = [
                pd.Series(self._row(table, one, column)["by_seed"], dtype=float)
                for one in (label, other)
            ]
            differences.append(over_seeds((sides[0] - sides[1]).dropna()))
        adjusted = holm([difference.p for difference in differences])
        shown = []
        for name, difference, p in zip(pairs, differences, adjusted, strict=True):
            shown.append(f"{name} {sentence(difference, p)}")
        return "; ".join(shown)

    def _table(self, table: str) -> list[dict[str, Any]]:
        file = "s-simcse" if table.startswith("s-simcse") else table.partition("-")[0]
        return [row for row in self.rows(f"{file}-mini") if row["table"] == table]

    def _row(self, table: str, label: str, column: str) -> dict[str, Any]:
        rows = [row for row in self._table(table) if row["label"] == label]
        return next(row for row in reversed(rows) if column in ("", row["column"]))

    def increases(self) -> dict[str, float]:
        """The last shuffled-[CLS] loss increase of every setting of stage 1."""
        return {row["name"]: row["gap"] for row in self.rows("conditioning-mini")}

    def increase(self, setting: str) -> str:
        """The loss increase of a setting in nats."""
        return f"{round(self.increases()[setting], 2) + 0.0:.2f}"  # -0.0 is 0

    def conditions(self, setting: str) -> str:
        """What the loss increase of a setting says about the network."""
        if self.increases()[setting] >= CLEAR:
            return "conditions on [CLS]"
        return "hardly conditions on [CLS]"

    def conditioning(self) -> str:
        """The settings whose network conditions on [CLS]."""
        names = [name for name, value in self.increases().items() if value >= CLEAR]
        return "; ".join(f"{name} ({self.increase(name)})" for name in names)

    def gradients(self) -> str:
        """The table of the measured gradients."""
        return gradients.table(self.rows("infocse-gradients"))

    def searches(self) -> str:
        """Models with BM25 minus the models alone: nDCG@10 on judged queries, by bootstrap."""
        shown = []
        for row in self.rows("search"):
            if row["part"] == "differences" and "Avg." in row:
                difference, low, high = row["Avg."]
                reading = "above" if low > 0 else "below" if high < 0 else "not told apart"
                minus = "the model alone" if row["hybrid minus"] == "dense" else "BM25 alone"
                figures = f"{difference:+.2f} ({low:+.2f} to {high:+.2f}: {reading})"
                shown.append(f"{row['model']} minus {minus} {figures}")
        return "; ".join(shown)

    def part(self, name: str, part: str, digits: int | None = None) -> str:
        """The rows of one part of a JSON file as a table, without how they were made.

        With `digits` three numbers are a difference and its interval.
        """
        rows = [row for row in self.rows(name) if row["part"] == part]
        names = []
        for name in dict.fromkeys(name for row in rows for name in row if name not in MADE):
            if any(row.get(name) is not None for row in rows):
                names.append(name)
        lines = [[_cell(row.get(name), digits) for name in names] for row in rows]
        return markdown([names, *lines])

    def right(self, name: str) -> str:
        """Of its part `right`: how many steps agree, and the errors of those that do not."""
        rows = pd.DataFrame([row for row in self.rows(name) if row["part"] == "right"])
        lines = []
        for place, group in rows.groupby(["shape", "path", "precision"], sort=False):
            wrong = group[~group["right"].astype(bool)]
            found = zip(wrong["name"], wrong["gradient_error"], strict=True)
            errors = [f"{name} ({error:.2g})" for name, error in found]
            agree = f"{len(group) - len(wrong)} of {len(group)}"
            worst = group[["loss_error", "gradient_error", "update_error"]].max()
            lines.append([*place, agree, *worst.map("{:.1e}".format), "; ".join(errors)])
        names = ["shape", "path", "precision", "right", "worst loss", "worst gradient"]
        return markdown([[*names, "worst update", "not right (gradient)"], *lines])


def _cell(value: Any, digits: int | None) -> str:
    if isinstance(value, list) and digits is not None:
        return "{:+.{d}f} ({:+.{d}f} to {:+.{d}f})".format(*value, d=digits)
    if isinstance(value, float):
        return f"{value:g}" if digits is None else f"{value:.{digits}f}"
    return "" if value is None else str(value)


def sentence(difference: Difference, p: float) -> str:
    """A difference with this adjusted p: its numbers, and what they show."""
    points, interval, seeds, shown, reading = described(difference, p)
    if interval == "-" or shown == "-":
        return f"{points} ({reading})"
    return f"{points} ({interval}, {seeds} seeds, Holm's p {shown}: {reading})"


def rendered(name: str, folder: Path) -> str:
    """A page of papers/templates with the numbers of this folder."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, keep_trailing_newline=True
    )
    template = environment.get_template(name)
    text = template.render(
        r=Results(folder), columns=" | ".join(COLUMNS), clear=CLEAR, published=published
    )
    return "\n\n".join(_filled(part) for part in text.split("\n\n"))


def _filled(part: str) -> str:
    """A paragraph whose lines are full again; tables, lists, titles and code are as they are."""
    if not part[:1].isalpha() and not part.startswith("**"):
        return part
    end = "\n" if part.endswith("\n") else ""
    return fill(part, 120, break_long_words=False, break_on_hyphens=False) + end


def write(folder: Path) -> None:
    """Write the pages of a folder of results, and their part of the README above it."""
    for template in sorted(TEMPLATES.glob("*.md")):
        text = rendered(template.name, folder)
        path = folder / ("README.md" if template.stem == "results" else template.name)
        if template.stem == "root":
            path = folder.parent / "README.md"
            before = path.read_text(encoding="utf-8")
            text = rewritten(before, "numbers", "python -m papers --page", text.rstrip("\n"))
        with writing(path) as part:
            part.write_text(text, encoding="utf-8")
