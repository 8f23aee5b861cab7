"""A table of results as Markdown: the paper's line, ours below it, and a verdict in words."""

from __future__ import annotations

from typing import Any

from eval.scores import markdown
from tables.cells import FACTS
from tables.plans import Choice
from tables.specification import Table

MISSING = "missing"
_TITLES = {"hardware": "machine", "text": "sha256 of the text", "start": "sha256 of the start, or its name on the hub"}
_MEANING = """Two lines a row: the paper's number, and ours as mean ± standard deviation (n - 1) over the seeds; n is
the number of runs. The verdict is about the last column: inside, above or below the 95 % interval of what is known to
differ from seed to seed; other backbones, texts or budgets are not compared."""


def page(table: Table, rows: list[dict[str, Any]], choice: Choice) -> str:
    """Title, table, notes and where the runs come from."""
    parts = [f"# {table.title}", f"{table.paper}, {table.place}.", _asked(table, choice), markdown(_body(table, rows))]
    parts += [_MEANING, *([table.note] if table.note else [])]
    notes = [f"- {row.label}: {row.note}" for row in table.rows if row.note]
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else []), _sources(rows)]) + "\n"


def _asked(table: Table, choice: Choice) -> str:
    flags = [f"--backbone {choice.backbone}"] if choice.backbone else []
    flags += [f"--steps {choice.steps}"] if choice.steps else []
    flags += [] if choice.bf16 else ["--float32"]
    return f"    python -m tables {' '.join([table.name, *flags, '--seeds', *map(str, choice.seeds)])}"


def _body(table: Table, rows: list[dict[str, Any]]) -> list[list[str]]:
    body = [["", "", *(_escaped(column.name) for column in table.columns), "n", "verdict"]]
    for row in table.rows:
        found = {one["column"]: one for one in rows if one["label"] == row.label}
        ordered = [found[column.name] for column in table.columns]
        runs = max(one["ours_runs"] for one in ordered)
        theirs = max(one["published_runs"] for one in ordered)
        body.append([_escaped(row.label), "paper", *map(_paper, ordered), str(theirs or "-"), ""])
        body.append(["", "ours", *map(_ours, ordered), str(runs), _escaped(ordered[-1]["verdict"])])
    return body


def _paper(one: dict[str, Any]) -> str:
    if one["published"] is None:
        return "-"
    text = _number(one, "published")
    return text if one["misprint"] is None else f"{text} (the table prints {one['misprint']:.2f})"


def _ours(one: dict[str, Any]) -> str:
    return MISSING if one["ours"] is None else _number(one, "ours")


def _number(one: dict[str, Any], name: str) -> str:
    std = one[f"{name}_std"]
    return f"{one[name]:.2f}" + (f" ± {std:.2f}" if std is not None else "")


def _sources(rows: list[dict[str, Any]]) -> str:
    """The settings that the rows were made with, each once."""
    records = [record for row in rows for record in row["provenance"].values()]
    if not records:
        return "Nothing was run."
    lines = []
    for name in FACTS:
        found = dict.fromkeys(_plain(record[name]) for record in records if record.get(name) is not None)
        lines += [f"- {_TITLES.get(name, name)}: {'; '.join(found)}"] if found else []
    return "\n".join(lines)


def _plain(value: Any) -> str:
    return ", ".join(f"{key} {one}" for key, one in value.items()) if isinstance(value, dict) else str(value)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
