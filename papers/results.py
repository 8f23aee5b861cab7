"""A table's rows of results: the tasks of its columns, the paper's figures, ours, and a verdict."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import pandas as pd

from common.errors import BadInput, NonFinite, ProjectError
from common.files import read_json, read_rows
from common.folders import locked, share
from eval.analyse.tokens import FrequentTokens
from eval.compare.intervals import ABOVE, BELOW, INSIDE, Interval, Line, compare
from eval.compare.sides import Score, Side, from_files, records
from eval.encode import device_here
from eval.retrieval.beir import PAPER14
from eval.scores import AVERAGE, Key, average, write_rows
from eval.tasks import Options, Task, tasks_named
from models.pooling import pooling_named
from papers.plans import plan_of
from papers.runs import Choice, RunPlan, facts_of, finished, load_all
from papers.specification import Column, Table, TableRow, names

logger = logging.getLogger(__name__)
STEPS = "steps"  # metric of a column of best steps, which are in the run's record
FREQUENT = "frequent_tokens"  # metrics: "spearman without N tokens"
_GROUPS = {  # metric -> the tasks that have it
    "spearman": "sts",
    "accuracy": "transfer",
    "ndcg@10": "beir",
    "recall@1": "retrieval",
    "recall@5": "retrieval",
    "recall@10": "retrieval",
}
_WORDS = {ABOVE: "above", BELOW: "below", INSIDE: "inside"}


def fill(table: Table, choice: Choice, path: Path, collect_only: bool) -> list[dict[str, Any]]:
    """The rows of a table; missing runs are trained and scored, every row before a second seed.

    A run with non-finite numbers is logged and stays missing; any other error ends the command.
    While other commands are at runs of the table there are no rows: the last one has them.

    Raises:
        BadInput: no row can be run, the table's file has figures that would be lost, or test data
            is missing.
        ProjectError: a script stopped; has its exit code.
    """
    plans = [plan_of(table, row, choice) for row in table.rows]
    runnable = [plan for plan in plans if isinstance(plan, RunPlan)]
    if collect_only:
        _refuse_loss(table, path, choice, [])
        return collect(table, choice)
    if not runnable:
        raise BadInput(f"{table.name}: no row can be run with these flags; --list says why")
    _refuse_loss(table, path, choice, runnable)
    tasks = needed(table.columns, choice.data_dir)
    load_all(tasks, choice.data_dir)

    def job(plan: RunPlan, seed: int, wait: bool) -> None:
        try:
            plan.fill(choice, seed, tasks, wait)
        except ProjectError as error:
            if error.exit_code != NonFinite.exit_code:
                raise
            logger.error("%s, seed %d: %s", plan.name, seed, error)

    jobs = {}
    for seed in choice.seeds:
        for plan in runnable:
            if seed in plan.folders(choice):
                jobs[plan.folder(choice, seed).name] = partial(job, plan, seed)
    return [] if share(jobs) else collect(table, choice)


def _refuse_loss(table: Table, path: Path, choice: Choice, plans: Iterable[RunPlan]) -> None:
    """Raise BadInput if the file has figures of runs that are neither here nor planned."""
    planned = set()
    for plan in plans:
        planned |= {folder.name for folder in plan.folders(choice).values()}
    lost = set()
    for row in known_rows(table, path):
        for facts in row["provenance"].values():
            run = PurePath(facts["run"]).name
            if run not in planned and finished(Path(choice.runs) / run) is None:
                lost.add(run)
    if lost:
        missing = f"runs that are not in {choice.runs} ({len(lost)}: {min(lost)}, ...)"
        raise BadInput(f"{path} has figures of {missing} and would be lost; give another --output")


def known_rows(table: Table, path: Path) -> list[dict[str, Any]]:
    """The table's rows in the file of its paper; none if there is no file."""
    return [row for row in _rows_in(path) if row["table"] == table.name]


def commands_in(path: Path) -> list[str]:
    """The commands that filled the tables of a file; none if it has other results."""
    rows = read_json(path, "results", kind=list)
    return [*dict.fromkeys(row["command"] for row in rows if row.get("table") in names())]


def _rows_in(path: Path) -> list[dict[str, Any]]:
    return read_rows(path, "the results of a paper", "give another --output")


def write(table: Table, path: Path, rows: list[dict[str, Any]]) -> None:
    """Put the table's rows in the file of its paper, whose other tables stay."""
    order = names()
    with locked(path, wait=True):
        others = [row for row in _rows_in(path) if row["table"] != table.name]
        write_rows(path, sorted([*others, *rows], key=lambda row: order.index(row["table"])))


def needed(columns: Iterable[Column], data_dir: str) -> dict[str, list[Task]]:
    """Name of a scores file -> its tasks, for all columns.

    Each BEIR set has its own file. Sets that are not in DATA_DIR/beir are skipped, because few
    users have all fourteen; their figures are shown as missing.
    """
    keys = [column.key for column in columns if column.key.metric != STEPS]
    options = Options(device=device_here())
    tasks: dict[str, list[Task]] = {}
    for group in dict.fromkeys(map(_group, keys)):
        if group == "dev":
            tasks[group] = tasks_named(["STS-B"], Options("dev"))
        elif group == FREQUENT:
            counts = tuple(int(key.metric.split()[2]) for key in keys)
            tasks[group] = [FrequentTokens(counts, pooling_named("avg_top2").pool)]
        elif group == "beir":
            names = [key.task for key in keys]
            for name in PAPER14 if AVERAGE in names else names:
                if (Path(data_dir) / "beir" / name).is_dir():
                    tasks[f"beir-{name}"] = tasks_named([name], replace(options, beir=(name,)))
        else:
            tasks[group] = tasks_named([group], options)
    return tasks


def _group(key: Key) -> str:
    return "dev" if key.split == "dev" else _GROUPS.get(key.metric, FREQUENT)


def figures_of(
    folder: Path, record: Mapping[str, Any], columns: Iterable[Column]
) -> dict[str, float]:
    """Column -> figure, from a run's scores files and record.

    Averages over several files are computed here.
    """
    scores: dict[Key, float] = {}
    for path in sorted(folder.glob("*.json")):
        if path.stem in {*_GROUPS.values(), "dev", FREQUENT} or path.stem.startswith("beir-"):
            for key, score in from_files(path.name, [path]).scores.items():
                scores[key] = score.mean
    figures: dict[str, float] = {}
    for column in columns:
        tasks = sorted(averaged(column.key))  # sorted for a reproducible sum
        parts = [Key(task, *column.key[1:]) for task in tasks]
        if column.key.metric == STEPS and record.get("best"):
            figures[column.name] = record["best"]["step"]
        elif column.key in scores:
            figures[column.name] = scores[column.key]
        elif parts and scores.keys() >= set(parts):
            rows = [{"value": scores[key], "n": 0} for key in parts]
            figures[column.name] = average(rows)["value"]
    return figures


def averaged(key: Key) -> frozenset[str]:
    """The tasks in an average; none for a single task."""
    if key.task != AVERAGE:
        return frozenset()
    any_record = next(iter(records().values()))
    return any_record.averaged.get(key[1:], frozenset())


def collect(table: Table, choice: Choice) -> list[dict[str, Any]]:
    """One JSON row per figure of the table, in its order; `ours` is None without a run."""
    results = []
    for row in table.rows:
        results += _results_of(table, row, choice)
    return results


def _results_of(table: Table, row: TableRow, choice: Choice) -> list[dict[str, Any]]:
    plan = plan_of(table, row, choice)
    provenance, figures = {}, {}  # by seed
    for seed, folder in plan.folders(choice).items() if isinstance(plan, RunPlan) else ():
        if record := finished(folder):
            provenance[seed] = {"run": str(folder), **facts_of(record)}
            figures[seed] = figures_of(folder, record, table.columns)
    by_column = pd.DataFrame(figures, dtype=float).reindex(
        [column.name for column in table.columns]
    )
    published = records()[row.published] if row.published else None
    results = []
    for column in table.columns:
        values = by_column.T[column.name].dropna()
        ours = statistic(values.to_list(), column.statistic)
        printed = published.scores.get(column.key) if published else None
        results.append(
            {
                "table": table.name,
                "command": choice.command(table.name),
                "label": row.label,
                "published_record": row.published,
                "config": row.config,
                "overrides": row.overrides,
                "backbone": choice.backbone or row.backbone,
                "paper_backbone": row.backbone,
                "provenance": provenance,
                "column": column.name,
                **column.key._asdict(),
                "statistic": column.statistic,
                **_fields(printed, column, "published"),
                "misprint": row.misprints.get(column.name),
                "source": printed.source if printed else None,
                **_fields(ours, column, "ours"),
                "by_seed": values.to_dict(),
                "verdict": _judged(column, ours, len(values), published, plan),
            }
        )
    return results


def _fields(score: Score | None, column: Column, name: str) -> dict[str, Any]:
    value, std, runs = None, None, 0
    if score and column.statistic == "max":
        value, runs = score.high, score.runs
    elif score:
        value, std, runs = score.mean, score.std, score.runs
    return {name: value, f"{name}_std": std, f"{name}_runs": runs}


def chosen_of(statistic: str, count: int) -> tuple[int, int]:
    """How many of how many runs count: 3 of 7 for `best 3 of 7`, otherwise all of `count`."""
    _, *numbers = statistic.replace(" of ", " ").split()
    return (int(numbers[0]), int(numbers[1])) if numbers else (count, count)


def statistic(values: Sequence[float], name: str) -> Score | None:
    """The score of a row's runs, or of the best among them; None without a run."""
    chosen, _ = chosen_of(name, len(values))
    best = sorted(values)[-chosen:]
    return Score.over(best, low=min(best), high=max(best)) if best else None


def _judged(
    column: Column, ours: Score | None, runs: int, published: Side | None, plan: RunPlan | str
) -> str:
    if isinstance(plan, str):
        return plan
    if ours is None:
        return "not run"
    if column.statistic == "max":
        return "cannot say: a maximum"
    _, expected = chosen_of(column.statistic, runs)
    if runs != expected:
        return f"cannot say: {column.statistic}, but {runs} runs"
    return verdict(column.key, ours, published, plan.differences)


def verdict(key: Key, ours: Score, published: Side | None, differences: Sequence[str]) -> str:
    """Inside, above or below the 95 % interval over seeds, or why it cannot be judged.

    Runs that differ from the paper's are not judged. A published single run is judged by the record
    of its method's spread, if there is one.
    """
    if published is None or key not in published.scores:
        return "not printed"
    if differences:
        return f"not comparable: {', '.join(differences)}"
    sets: dict[tuple[str, ...], frozenset[str]] = {}
    if averaged(key):
        sets[key[1:]] = averaged(key)
    mine = Side("ours", {key: ours}, (key,), sets)
    theirs = replace(published, scores={key: published.scores[key]}, headline=(key,))
    lines = compare(mine, theirs)
    decided = [line for line in lines if isinstance(line.outcome, Interval)]
    return _in_words(decided[-1] if decided else lines[0], published.note)


def _in_words(line: Line, note: str | None) -> str:
    """The verdict, and its reference if that is not the figure on the page."""
    if isinstance(line.outcome, str):
        return line.outcome
    if line.against:
        return f"{_WORDS[line.verdict]} {line.b} of {line.against}"
    return _WORDS[line.verdict] + (f" ({note})" if note else "")
