"""A table of results as Markdown and, for a figure of the paper, a picture: a curve or a heat map."""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from common.files import writing
from eval.analyse.pictures import frame, styles
from eval.scores import markdown
from papers.runs import FACTS, Choice
from papers.specification import Table

MISSING = "missing"
_TITLES = {
    "hardware": "machine",
    "text": "sha256 of the text",
    "start": "sha256 of the initial model, or its hub name",
}
_MEANING = """Two lines per row: the paper's number, and ours as mean ± standard deviation (n - 1) over the seeds; n is
the number of runs. The verdict is about the last column: inside, above or below the 95 % interval of the known
differences between seeds; other backbones, texts or budgets are not compared."""


def page(table: Table, rows: list[dict[str, Any]], choice: Choice) -> str:
    """Title, command, table, notes and provenance of the runs."""
    flags = [f"--backbone {choice.backbone}"] if choice.backbone else []
    flags += [f"--steps {choice.steps}"] if choice.steps else []
    flags += [] if choice.bf16 else ["--float32"]
    command = (
        f"    python -m papers {' '.join([table.name, *flags, '--seeds', *map(str, choice.seeds)])}"
    )
    notes = "\n".join(f"- {row.label}: {row.note}" for row in table.rows if row.note)
    parts = [
        f"# {table.title}",
        f"{table.paper}, {table.where}.",
        command,
        markdown(_body(table, rows)),
        _MEANING,
    ]
    return "\n\n".join(filter(None, [*parts, table.note, notes, _sources(rows)])) + "\n"


def _body(table: Table, rows: list[dict[str, Any]]) -> list[list[str]]:
    body = [["", "", *(column.name for column in table.columns), "n", "verdict"]]
    for row in table.rows:
        by_column = {result["column"]: result for result in rows if result["label"] == row.label}
        results = [by_column[column.name] for column in table.columns]
        theirs, ours = (
            max(result[f"{name}_runs"] for result in results) for name in ("published", "ours")
        )
        body.append(
            [
                row.label,
                "paper",
                *(_number(r, "published", "-") for r in results),
                str(theirs or "-"),
                "",
            ]
        )
        body.append(
            [
                "",
                "ours",
                *(_number(r, "ours", MISSING) for r in results),
                str(ours),
                results[-1]["verdict"],
            ]
        )
    return body


def _number(result: dict[str, Any], name: str, missing: str) -> str:
    if result[name] is None:
        return missing
    std, printed = result[f"{name}_std"], result["misprint"] if name == "published" else None
    text = f"{result[name]:.2f}" + (f" ± {std:.2f}" if std is not None else "")
    return text if printed is None else f"{text} (the table prints {printed:.2f})"


def mean_and_std(values: Sequence[float], missing: str) -> str:
    """`mean ± standard deviation` (n - 1) with two decimals, only the mean for one value, `missing` for none."""
    if not values:
        return missing
    return f"{statistics.mean(values):.2f}" + (
        f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    )


def _sources(rows: list[dict[str, Any]]) -> str:
    """The facts of all runs, without repetition."""
    records = [record for row in rows for record in row["provenance"].values()]
    if not records:
        return "Nothing was run."
    lines = []
    for name in FACTS:
        values = dict.fromkeys(
            _plain(record[name]) for record in records if record.get(name) is not None
        )
        lines += [f"- {_TITLES.get(name, name)}: {'; '.join(values)}"] if values else []
    return "\n".join(lines)


def _plain(value: Any) -> str:
    return (
        ", ".join(f"{key} {item}" for key, item in value.items())
        if isinstance(value, dict)
        else str(value)
    )


def rewritten(page: str, name: str, command: str, content: str) -> str:
    """The page with new content between the markers of `name`, which come last on a page without them."""
    begin, end = f"<!-- {name}: made by `{command}` -->", f"<!-- end of {name} -->"
    before, marker, rest = page.partition(begin)
    after = rest.partition(end)[2] if marker else "\n"
    return f"{before}{'' if marker else chr(10)}{begin}\n{content}\n{end}{after}"


def draw(table: Table, rows: list[dict[str, Any]], path: Path) -> None:
    """Draw a table that has a `figure`; points that are neither published nor run are skipped."""
    figure, axes = frame(
        f"{table.figure.title}\n{table.paper}, {table.where}", table.figure.x, table.figure.y
    )
    (_heat_map if table.figure.chart == "heat map" else _curve)(axes, table, rows)
    with writing(path) as part:
        figure.savefig(part, dpi=200, format="png")


def points(
    table: Table, rows: list[dict[str, Any]]
) -> Iterator[tuple[str, Any, Any, dict[str, Any]]]:
    """(series, x, y, JSON row) of every figure."""
    columns = {column.name: column for column in table.columns}
    lines = {row.label: row for row in table.rows}
    for result in rows:
        row, column = lines[result["label"]], columns[result["column"]]
        series, x = (
            (row.label, column.x)
            if column.x is not None
            else (row.series or result["column"], row.x)
        )
        yield series, x, row.y, result


def _curve(axes: Axes, table: Table, rows: list[dict[str, Any]]) -> None:
    drawn = list(points(table, rows))
    others = sorted(
        {
            row["backbone"]
            for row in rows
            if row["ours"] and row["backbone"] != row["paper_backbone"]
        }
    )
    backbone = f" ({', '.join(others)})" if others else ""
    names = dict.fromkeys(
        f"{series}, {whose}" for series, *_ in drawn for whose in ("paper", "ours")
    )
    for name, style in styles(names).items():
        series, whose = name.rsplit(", ", 1)
        value = "published" if whose == "paper" else "ours"
        shown = [
            (x, row[value], row[f"{value}_std"] or 0) for line, x, _, row in drawn if line == series
        ]
        shown = sorted(point for point in shown if point[1] is not None)
        if shown:
            xs, ys, stds = zip(*shown, strict=True)
            style = {
                "linestyle": "--" if whose == "paper" else "-",
                "markersize": 7,
                "linewidth": 1.6,
                **style,
            }
            axes.errorbar(
                xs,
                ys,
                stds,
                capsize=3,
                label=name if whose == "paper" else name + backbone,
                **style,
            )
    if table.figure.log:
        axes.set_xscale("symlog", linthresh=1) if any(
            x == 0 for _, x, *_ in drawn
        ) else axes.set_xscale("log")
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=10, frameon=False)


def _heat_map(axes: Axes, table: Table, rows: list[dict[str, Any]]) -> None:
    """One square per pair: our number, also as colour, and below it the paper's number in brackets."""
    drawn = list(points(table, rows))
    xs, ys = (list(dict.fromkeys(point[i] for point in drawn)) for i in (1, 2))
    values = [[float("nan")] * len(xs) for _ in ys]
    box = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 1.5}
    for _, x, y, row in drawn:
        text = MISSING if row["ours"] is None else f"{row['ours']:.2f}"
        text += "" if row["published"] is None else f"\n({row['published']:.2f})"
        values[ys.index(y)][xs.index(x)] = float("nan") if row["ours"] is None else row["ours"]
        axes.text(xs.index(x), ys.index(y), text, ha="center", va="center", fontsize=9, bbox=box)
    axes.imshow(values, cmap="viridis")
    axes.set_xticks(range(len(xs)), xs, rotation=30, ha="right")
    axes.set_yticks(range(len(ys)), ys)
