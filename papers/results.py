"""A table's rows of results: which tasks its columns need, the paper's figure, ours, and how they compare."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval.analyse.tokens import FrequentTokens
from eval.compare.intervals import ABOVE, BELOW, INSIDE, Interval, Line, compare
from eval.compare.sides import Score, Side, from_files, records
from eval.encode import device_here
from eval.retrieval.beir import PAPER14
from eval.scores import AVERAGE, Key, average
from eval.tasks import Options, Task, tasks_named
from models.pooling import pooling_named
from papers.runs import Choice, RunPlan, facts_of, finished, plan_of
from papers.specification import Column, Table, TableRow

STEPS = "steps"  # metric of a column of best steps, which are in the run's record
FREQUENT = "frequent_tokens"  # metrics: "spearman without N tokens"
_FAMILY = {"spearman": "sts", "accuracy": "transfer", "ndcg@10": "beir"}
_FAMILY |= dict.fromkeys(("recall@1", "recall@5", "recall@10"), "retrieval")
_WORDS = {ABOVE: "above", BELOW: "below", INSIDE: "inside"}


def needed(columns: Iterable[Column], data_dir: str) -> dict[str, list[Task]]:
    """Name of a scores file -> its tasks, for all columns.

    Each BEIR set has its own file. Sets that are not in DATA_DIR/beir are skipped, because few
    users have all fourteen; their figures are shown as missing.
    """
    keys, options = (
        [column.key for column in columns if column.key.metric != STEPS],
        Options(device=device_here()),
    )
    tasks: dict[str, list[Task]] = {}
    for family in dict.fromkeys(
        "dev" if key.split == "dev" else _FAMILY.get(key.metric, FREQUENT) for key in keys
    ):
        if family == "dev":
            tasks[family] = tasks_named(["STS-B"], Options("dev"))
        elif family == FREQUENT:
            counts = tuple(int(key.metric.split()[2]) for key in keys)
            tasks[family] = [FrequentTokens(counts, pooling_named("avg_top2").pool)]
        elif family == "beir":
            names = (
                PAPER14 if any(key.task == AVERAGE for key in keys) else [key.task for key in keys]
            )
            for name in (name for name in names if (Path(data_dir) / "beir" / name).is_dir()):
                tasks[f"beir-{name}"] = tasks_named([name], replace(options, beir=(name,)))
        else:
            tasks[family] = tasks_named([family], options)
    return tasks


def figures_of(
    folder: Path, record: Mapping[str, Any], columns: Iterable[Column]
) -> dict[Key, float]:
    """The columns' figures in a run's scores files and record; averages over several files are computed here."""
    figures: dict[Key, float] = {}
    if best := record.get("best"):
        figures = {column.key: best["step"] for column in columns if column.key.metric == STEPS}
    for path in sorted(folder.glob("*.json")):
        if path.stem in {*_FAMILY.values(), "dev", FREQUENT} or path.stem.startswith("beir-"):
            figures |= {
                key: score.mean for key, score in from_files(path.name, [path]).scores.items()
            }
    for key in {column.key for column in columns} - figures.keys():
        sets = [
            Key(task, *key[1:]) for task in sorted(averaged(key))
        ]  # sorted for a reproducible sum
        if sets and all(key in figures for key in sets):
            figures[key] = average([{"value": figures[key], "n": 0} for key in sets])["value"]
    return {column.key: figures[column.key] for column in columns if column.key in figures}


def averaged(key: Key) -> frozenset[str]:
    """The tasks in an average; none for a single task."""
    sets = next(iter(records().values())).averaged
    return sets.get(key[1:], frozenset()) if key.task == AVERAGE else frozenset()


def collect(table: Table, choice: Choice) -> list[dict[str, Any]]:
    """One JSON row per figure of the table, in its order; `ours` is None without a run."""
    return [result for row in table.rows for result in _row(table, row, choice)]


def _row(table: Table, row: TableRow, choice: Choice) -> Iterable[dict[str, Any]]:
    plan = plan_of(table, row, choice)
    done = {}  # seed -> folder and record
    if isinstance(plan, RunPlan):
        runs = {seed: (folder, finished(folder)) for seed, folder in plan.folders(choice).items()}
        done = {seed: run for seed, run in runs.items() if run[1]}
    figures = {
        seed: figures_of(folder, record, table.columns) for seed, (folder, record) in done.items()
    }
    theirs = records()[row.published] if row.published else None
    shared = {
        "table": table.name,
        "label": row.label,
        "published_record": row.published,
        "config": row.config,
        "overrides": row.overrides,
        "backbone": choice.backbone or row.backbone,
        "paper_backbone": row.backbone,
        "provenance": {
            seed: {"run": str(run), **facts_of(record)} for seed, (run, record) in done.items()
        },
    }
    by_key = {
        column.key: {
            seed: values[column.key] for seed, values in figures.items() if column.key in values
        }
        for column in table.columns
    }
    missing = "not run" if isinstance(plan, RunPlan) else plan
    for column in table.columns:
        score = statistic([*by_key[column.key].values()], column.statistic)
        printed = theirs.scores.get(column.key) if theirs else None
        if score and column.statistic == "max":
            verdict = "cannot say: a maximum"
        elif (
            score
            and len(by_key[column.key]) != chosen_of(column.statistic, len(by_key[column.key]))[1]
        ):
            verdict = f"cannot say: {column.statistic}, but {len(by_key[column.key])} runs"
        elif score and isinstance(plan, RunPlan):
            verdict = verdicts({column.key: score}, theirs, plan.differences)[column.key]
        else:
            verdict = missing
        yield {
            **shared,
            "column": column.name,
            **column.key._asdict(),
            "statistic": column.statistic,
            **_fields(printed, column, "published"),
            "misprint": row.misprints.get(column.name),
            "source": printed.source if printed else None,
            **_fields(score, column, "ours"),
            "by_seed": by_key[column.key],
            "verdict": verdict,
        }


def chosen_of(statistic: str, count: int) -> tuple[int, int]:
    """How many of how many runs a statistic is over: 3 and 7 for `best 3 of 7`, otherwise all `count`."""
    _, *numbers = statistic.replace(" of ", " ").split()
    return (int(numbers[0]), int(numbers[1])) if numbers else (count, count)


def statistic(values: Sequence[float], name: str) -> Score | None:
    """The score of a row's runs, or of the best among them; None without a run."""
    best = sorted(values)[-chosen_of(name, len(values))[0] :]
    return Score.over(best, low=min(best), high=max(best)) if best else None


def _fields(score: Score | None, column: Column, name: str) -> dict[str, Any]:
    value, std, runs = (score.mean, score.std, score.runs) if score else (None, None, 0)
    if score and column.statistic == "max":
        value, std = score.high, None
    return {name: value, f"{name}_std": std, f"{name}_runs": runs}


def verdicts(
    ours: dict[Key, Score], theirs: Side | None, differences: Sequence[str]
) -> dict[Key, str]:
    """For every figure: inside, above or below the 95 % interval over seeds, or why it cannot be
    judged.

    Runs that differ from the paper's are not judged. A published single run is judged by the record
    of its method's spread, if there is one.
    """
    result = dict.fromkeys(ours, "not printed")
    shared = tuple(key for key in ours if theirs and key in theirs.scores)
    if differences:
        return result | dict.fromkeys(shared, f"not comparable: {', '.join(differences)}")
    if shared:
        sets = {key[1:]: averaged(key) for key in shared if averaged(key)}
        mine = Side("ours", {key: ours[key] for key in shared}, shared, sets)
        printed = replace(
            theirs, scores={key: theirs.scores[key] for key in shared}, headline=shared
        )
        judged: dict[Key, str] = {}
        for line in compare(mine, printed):
            if line.key not in judged or isinstance(line.outcome, Interval):
                judged[line.key] = _verdict(line, theirs.note)
        result |= judged
    return result


def _verdict(line: Line, note: str | None) -> str:
    """The verdict, and its reference if that is not the figure on the page."""
    if isinstance(line.outcome, str):
        return line.outcome
    if line.against:
        return f"{_WORDS[line.verdict]} {line.b} of {line.against}"
    return _WORDS[line.verdict] + (f" ({note})" if note else "")
