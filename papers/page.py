"""A table's section of its paper's page, and sections between markers."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from eval.scores import markdown
from papers.runs import FACTS, Choice, precision
from papers.specification import Table

MISSING = "missing"
_TITLES = {
    "scored_step": "scored step",
    "stage_one_steps": "steps of the pre-training that made the checkpoint",
    "hardware": "machine",
    "earlier_starts": "began with commit",
    "text": "sha256 of the text",
    "start": "sha256 of the checkpoint, or its hub name",
}
MEANING = (
    "Two lines per row: the paper's number, and ours as mean ± standard deviation (n - 1) over the "
    "seeds; n is\nthe number of runs. The verdict is about the last column: inside, above or below "
    "the 95 % interval of the known\ndifferences between seeds; other backbones, texts or budgets "
    "are not compared."
)
Rows = Sequence[Mapping[str, Any]]  # of the table's JSON file, see `papers.results`


def section(table: Table, rows: Rows, choice: Choice) -> str:
    """Title, command, table, notes and provenance of the runs."""
    parts = [
        f"## {table.name}",
        f"{table.title} ({table.where}).",
        f"    {choice.command(table.name)}",
        *_exceptions(rows, choice),
        markdown(_lines(table, rows)),
    ]
    if table.note:
        parts.append(table.note)
    if notes := [f"- {row.label}: {row.note}" for row in table.rows if row.note]:
        parts.append("\n".join(notes))
    parts.append(_provenance(rows))
    return "\n\n".join(parts)


def _exceptions(rows: Rows, choice: Choice) -> list[str]:
    """A list of the rows whose runs are not those of the page's command, if there are any."""
    runs: dict[str, dict[str, Mapping[str, Any]]] = {}  # label -> seed -> facts
    for row in rows:
        runs.setdefault(row["label"], {}).update(row["provenance"])
    devices: list[str] = []
    for by_seed in runs.values():
        devices += map(_device, by_seed.values())
    usual = max(devices, key=devices.count, default="")
    labels: dict[str, list[str]] = {}
    for label, by_seed in runs.items():
        for words in _unlike_command(by_seed, choice, usual):
            labels.setdefault(words, []).append(label)
    if not labels:
        return []
    lines = [f"- {words}: {'; '.join(of_words)}" for words, of_words in labels.items()]
    return ["\n".join(["Other runs than those of the command:", "", *lines])]


def _unlike_command(
    by_seed: Mapping[str, Mapping[str, Any]], choice: Choice, usual_device: str
) -> list[str]:
    """How the runs of a row differ from the command and from the machine of most others."""
    different = []
    seeds = [str(seed) for seed, facts in by_seed.items() if "_seed-" in facts["run"]]
    if seeds and seeds != [str(seed) for seed in choice.seeds]:
        different.append(f"seeds {' '.join(seeds)}" if len(seeds) > 1 else f"seed {seeds[0]} alone")
    steps = {facts["steps"] for facts in by_seed.values()} - {0, choice.steps}
    if choice.steps and steps:
        different.append(f"{', '.join(map(str, sorted(steps)))} steps")
    precisions = {facts["precision"] for facts in by_seed.values() if facts.get("precision")}
    different += sorted(precisions - {precision(choice.bf16)})
    devices = sorted({_device(facts) for facts in by_seed.values()})
    if devices != [usual_device] and devices:
        different.append(f"on {' and '.join(devices)}")
    return different


def _device(facts: Mapping[str, Any]) -> str:
    return str((facts.get("hardware") or {}).get("device"))


def _lines(table: Table, rows: Rows) -> list[list[str]]:
    """A header, and for every row of the table a line of the paper's numbers and one of ours."""
    lines = [["", "", *(column.name for column in table.columns), "n", "verdict"]]
    for row in table.rows:
        by_column = {result["column"]: result for result in rows if result["label"] == row.label}
        results = [by_column[column.name] for column in table.columns]
        published = []
        for result in results:
            number = _number(result, "published", "-")
            if result["misprint"] is not None:
                number += f" (the table prints {result['misprint']:.2f})"
            published.append(number)
        ours = [_number(result, "ours", MISSING) for result in results]
        theirs = max(result["published_runs"] for result in results) or "-"
        runs = max(result["ours_runs"] for result in results)
        lines.append([row.label, "paper", *published, str(theirs), ""])
        lines.append(["", "ours", *ours, str(runs), results[-1]["verdict"]])
    return lines


def _number(result: Mapping[str, Any], name: str, missing: str) -> str:
    if result[name] is None:
        return missing
    return with_deviation(result[name], result[f"{name}_std"])


def with_deviation(mean: float, deviation: float | None) -> str:
    """`mean ± standard deviation` with two decimals; only the mean of one run."""
    if deviation is None:
        return f"{mean:.2f}"
    return f"{mean:.2f} ± {deviation:.2f}"


def mean_and_deviation(values: pd.Series, missing: str) -> str:
    """Mean and standard deviation (n - 1) of a figure over runs.

    `missing` stands for no value; if only some runs have one, it is said how many.
    """
    known = values.dropna().tolist()
    if not known:
        return missing
    # `statistics` sums exactly: two roundings of a mean that lies between them do not take turns
    text = with_deviation(
        statistics.mean(known), statistics.stdev(known) if len(known) > 1 else None
    )
    if len(known) < len(values):
        text += f" (n = {len(known)})"
    return text


def _provenance(rows: Rows) -> str:
    """The facts of all runs, without repetition, except the precision, which stands above."""
    runs = [facts for row in rows for facts in row["provenance"].values()]
    if not runs:
        return "Nothing was run."
    lines = []
    for name in FACTS:
        values: dict[str, None] = {}
        for facts in runs:
            value = facts.get(name)
            if isinstance(value, dict):
                value = ", ".join(f"{key} {item}" for key, item in value.items())
            if value is not None:
                values[str(value)] = None
        if values and name != "precision":
            lines.append(f"- {_TITLES.get(name, name)}: {'; '.join(values)}")
    return "\n".join(lines)


def rewritten(page: str, name: str, command: str, content: str) -> str:
    """The page with new content between the markers of `name`; at its end if it has no markers."""
    begin = f"<!-- {name}: made by `{command}` -->"
    end = f"<!-- end of {name} -->"
    generated = f"{begin}\n{content}\n{end}"
    if begin not in page:
        return f"{page}\n{generated}\n"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return before + generated + after
