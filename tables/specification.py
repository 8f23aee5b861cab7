"""The papers' tables as data: one file of tables/papers a table, read and checked here.

    title, paper, place    what the table is and where it stands
    backbone               of rows that name none: the second half of configs/METHOD-BACKBONE.yaml
    columns                [{tasks, split, metric, statistic, name, x}]: what is evaluated
    rows                   [{label, and one of: config with overrides and after; evaluate; published_only}]
    figure                 {kind: curve or heat map, x, y, log}, where the paper has one
    note                   for the reader

A row names its published numbers by the id of a record of eval/compare/published.yaml, where they stand once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import BadInput
from common.files import read_yaml
from eval.compare.published import check_keys, check_values, records
from eval.scores import Key

FOLDER = Path(__file__).parent / "papers"
STATISTICS = ("mean", "max")
KINDS = ("curve", "heat map")
_WAYS = ("config", "evaluate", "published_only")
_NEEDED = {"title", "paper", "place", "backbone", "columns", "rows"}
_TABLE = {"title": str, "paper": str, "place": str | int, "backbone": str, "columns": list, "rows": list}
_TABLE |= {"figure": dict, "note": str}
_COLUMN = {"tasks": list, "split": str, "metric": str, "statistic": str, "name": object, "x": int | float}
_ROW = dict.fromkeys((*_WAYS, "backbone", "published", "after", "note"), str)
_ROW |= {"overrides": dict, "misprints": dict, "label": object, "series": object, "x": object, "y": object}
_FIGURE = {"kind": str, "x": str, "y": str, "log": bool}


@dataclass(frozen=True)
class Column:
    """One figure of a row: `statistic` (mean or max) of `key` over the runs; `x` is its place in a curve."""

    name: str
    key: Key
    statistic: str = "mean"
    x: float | None = None


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes:
        label: as the paper prints it.
        backbone: the paper's.
        config: the method half of a configuration's name.
        overrides: flags of the script that win over the configuration.
        after: the method half of a configuration whose run this one starts from.
        evaluate: pooling of the untrained backbone, where nothing is trained.
        published_only: why the row cannot be run here.
        published: id of the record with the paper's numbers; None where the paper prints none.
        misprints: column -> what the table prints where the record has another number on purpose.
        note: for the reader.
        series, x, y: the row's place in a figure.
    """

    label: str
    backbone: str
    config: str | None = None
    overrides: dict[str, str] = field(default_factory=dict)
    after: str | None = None
    evaluate: str | None = None
    published_only: str | None = None
    published: str | None = None
    misprints: dict[str, float] = field(default_factory=dict)
    note: str | None = None
    series: str | None = None
    x: Any = None
    y: Any = None


@dataclass(frozen=True)
class Figure:
    """What a table's picture is: `x` and `y` name the axes; `log` stretches the x of a curve."""

    kind: str
    x: str
    y: str
    log: bool = False


@dataclass(frozen=True)
class Table:
    """One table or figure of a paper."""

    name: str
    title: str
    paper: str
    place: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    figure: Figure | None = None
    note: str | None = None


def names(folder: Path = FOLDER) -> list[str]:
    """All tables, in the papers' order."""
    parts = (path.stem.rpartition("-") for path in folder.glob("*.yaml"))
    return ["-".join((paper, number)) for paper, _, number in sorted(parts, key=lambda p: (p[0], len(p[2]), p[2]))]


def read(name: str, folder: Path = FOLDER) -> Table:
    """The table of that name.

    Raises:
        BadInput: no such table (with the nearest), or a file that is not as described at the top of this module.
    """
    if name not in names(folder):
        near = difflib.get_close_matches(name, names(folder), n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"choose from: {', '.join(names(folder))}"
        raise BadInput(f"table '{name}' is unknown; {hint}")
    path = folder / f"{name}.yaml"
    content = read_yaml(path)
    check_keys(path, "the file", content, _NEEDED, _TABLE)
    if not all(content[key] for key in ("columns", "rows")):
        raise BadInput(f"{path}: columns and rows need a list each")
    columns = tuple(column for entry in content["columns"] for column in _columns(path, entry))
    rows = tuple(_row(path, entry, content["backbone"], columns) for entry in content["rows"])
    _check_distinct(path, "column", [column.name for column in columns])
    _check_distinct(path, "label", [row.label for row in rows])
    words = {key: str(content[key]) for key in ("title", "paper", "place")}
    return Table(name, **words, columns=columns, rows=rows, note=content.get("note"),
                 figure=_figure(path, content.get("figure"), rows, columns))  # fmt: skip


def _columns(path: Path, entry: Any) -> Iterator[Column]:
    check_keys(path, "a column", entry, {"tasks"}, _COLUMN)
    statistic = entry.get("statistic", "mean")
    if statistic not in STATISTICS:
        raise BadInput(f"{path}: column {entry['tasks']}: statistic '{statistic}' is none of {', '.join(STATISTICS)}")
    for task in map(str, entry["tasks"]):
        key = Key(task, entry.get("split", "test"), "test", entry.get("metric", "spearman"))
        yield Column(str(entry.get("name", key)), key, statistic, entry.get("x"))


def _row(path: Path, entry: Any, backbone: str, columns: tuple[Column, ...]) -> Row:
    check_keys(path, "a row", entry, {"label"}, _ROW)
    where = f"{path}: row '{entry['label']}'"
    if sum(way in entry for way in _WAYS) != 1:
        raise BadInput(f"{where}: one of {', '.join(_WAYS)} is needed")
    if "config" not in entry and not {"overrides", "after"}.isdisjoint(entry):
        raise BadInput(f"{where}: overrides and after belong to a config")
    check_values(path, where, entry.get("misprints", {}), int | float)
    check_values(path, where, entry.get("overrides", {}), object)
    unknown = set(entry.get("misprints", {})) - {column.name for column in columns}
    if unknown:
        raise BadInput(f"{where}: misprints of '{min(unknown)}', which is no column")
    _check_published(where, entry.get("published"), columns)
    given = {"backbone": backbone, **entry, "label": str(entry["label"])}
    return Row(**{**given, "overrides": {k: _flag(where, k, v) for k, v in entry.get("overrides", {}).items()}})


def _check_published(where: str, name: str | None, columns: tuple[Column, ...]) -> None:
    if name is None:
        return
    if name not in records():
        near = difflib.get_close_matches(name, records(), n=1)
        raise BadInput(f"{where}: published '{name}' is no record" + (f"; did you mean '{near[0]}'?" if near else ""))
    if not any(column.key in records()[name].scores for column in columns):
        raise BadInput(f"{where}: the record '{name}' has none of the columns")


def _flag(where: str, name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise BadInput(f"{where}: overrides: '{name}' needs one value, not {value}")
    return str(value)


def _figure(path: Path, entry: Any, rows: tuple[Row, ...], columns: tuple[Column, ...]) -> Figure | None:
    if entry is None:
        return None
    check_keys(path, "figure", entry, {"kind", "x", "y"}, _FIGURE)
    if entry["kind"] not in KINDS:
        raise BadInput(f"{path}: figure: kind '{entry['kind']}' is none of {', '.join(KINDS)}")
    placed = all(column.x is not None for column in columns) or all(row.x is not None for row in rows)
    if not placed or (entry["kind"] == "heat map" and not all(row.y is not None for row in rows)):
        raise BadInput(f"{path}: figure: every row (or every column of a curve) needs its place: x, for a heat map y")
    return Figure(**entry)


def _check_distinct(path: Path, what: str, found: list[str]) -> None:
    twice = [name for name in found if found.count(name) > 1]
    if twice:
        raise BadInput(f"{path}: {what} '{twice[0]}' twice")
