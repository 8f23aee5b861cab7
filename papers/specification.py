"""The papers' tables as data: one file per table in papers/tables.

    title, paper, where    what the table shows and where it is printed
    backbone               default for rows: the second half of configs/METHOD-BACKBONE.yaml
    columns                [{tasks, split, metric, statistic, name}]: what is evaluated
    rows                   [{label, and one of: config with overrides and after; evaluate;
                           published_only}]; with baseline, a command of `python -m baselines` is
                           fitted to the text of config
    note                   for the reader

A row refers to its published numbers by the id of a record in eval/compare/published.yaml.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from common.files import read_yaml
from eval.scores import Key

FOLDER = Path(__file__).parent / "tables"


@dataclass(frozen=True)
class Column:
    """One figure of a row.

    Attributes:
        name: its title.
        key: the figure of a run; the metric `steps` is the step of the best model.
        statistic: over the runs: mean, max, or the mean of the `best N of M` seeds.
    """

    name: str
    key: Key
    statistic: str = "mean"


@dataclass(frozen=True)
class TableRow:
    """One line of a table.

    Attributes:
        label: as in the paper.
        backbone: as in the paper.
        config: the method half of a configuration's name.
        overrides: flags of the script that override the configuration, or flags of the baseline.
        baseline: command of `python -m baselines` that is fitted to the text of the configuration,
            after the off-the-shelf backbone or the run of `after`.
        after: the method half of the configuration whose run this one starts from.
        evaluate: pooling of the off-the-shelf backbone, if nothing is trained.
        published_only: why the row cannot be run here.
        published: id of the record with the paper's numbers; None if the paper has none.
        misprints: column -> number in the paper's table, if the record deliberately has another
            one.
        note: for the reader.
    """

    label: str
    backbone: str
    config: str | None = None
    overrides: dict[str, str] = field(default_factory=dict)
    baseline: str | None = None
    after: str | None = None
    evaluate: str | None = None
    published_only: str | None = None
    published: str | None = None
    misprints: dict[str, float] = field(default_factory=dict)
    note: str | None = None


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    paper: str
    where: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    note: str | None = None

    @property
    def file(self) -> str:
        """The name of the page and the JSON file that all tables of the paper share."""
        return self.paper.split()[0].lower()

    def with_rows(self, labels: Collection[str]) -> Table:
        """The table with only these rows."""
        return replace(self, rows=tuple(row for row in self.rows if row.label in labels))


def names() -> list[str]:
    stems = (path.stem for path in FOLDER.glob("*.yaml"))
    return sorted(stems, key=lambda stem: (stem.rstrip("0123456789"), len(stem), stem))


def read(name: str) -> Table:
    """The table with this name; overrides of its rows as words of a command line."""
    content = read_yaml(FOLDER / f"{name}.yaml")
    backbone = content.pop("backbone")
    columns: list[Column] = []
    for entry in content.pop("columns"):
        columns += _columns(**entry)
    rows = []
    for entry in content.pop("rows"):
        row = TableRow(**{"backbone": backbone, **entry})
        for flag, value in row.overrides.items():
            row.overrides[flag] = str(value).lower() if isinstance(value, bool) else str(value)
        rows.append(row)
    return Table(name, columns=tuple(columns), rows=tuple(rows), **content)


def _columns(
    tasks: Sequence[str], split: str = "test", metric: str = "spearman", name: str = "", **more: Any
) -> list[Column]:
    keys = [Key(task, split, "test", metric) for task in tasks]
    return [Column(name or str(key), key, **more) for key in keys]
