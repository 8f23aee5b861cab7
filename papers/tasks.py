"""The tasks of a table's columns, and their figures in a run's scores files, one file per task family."""

from collections.abc import Iterable
from pathlib import Path

from common.errors import BadInput
from eval.analyse.tokens import WITHOUT_TOKENS, FrequentTokens
from eval.compare.sides import from_files, records
from eval.encode import device_here
from eval.retrieval.beir import PAPER14
from eval.scores import AVERAGE, Key, average
from eval.tasks import Options, Task, tasks_named
from models.pooling import pooling_named
from papers.specification import Column

FREQUENT = "frequent_tokens"
_FAMILY = {"spearman": "sts", "accuracy": "transfer", "recall@1": "retrieval", "recall@5": "retrieval",
           "recall@10": "retrieval", "ndcg@10": "beir"}  # fmt: skip


def needed(columns: Iterable[Column], data_dir: str) -> dict[str, list[Task]]:
    """Name of a scores file -> its tasks, for all columns.

    Each BEIR set has its own file. Sets that are not in DATA_DIR/beir are skipped, because few users have all fourteen;
    their figures are shown as missing.
    """
    keys, device = [column.key for column in columns], device_here()
    tasks: dict[str, list[Task]] = {}
    for family in dict.fromkeys(map(_family, keys)):
        if family == "dev":
            tasks[family] = tasks_named(["STS-B"], Options("dev"))
        elif family == FREQUENT:
            average = pooling_named("avg_top2").pool
            tasks[family] = [FrequentTokens(tuple(count_of(key.metric) for key in keys), average)]
        elif family == "beir":
            names = PAPER14 if any(key.task == AVERAGE for key in keys) else [key.task for key in keys]
            existing = [name for name in names if _exists(name, data_dir)]
            tasks |= {f"beir-{name}": tasks_named([name], Options(beir=(name,), device=device)) for name in existing}
        else:
            tasks[family] = tasks_named([family], Options(device=device))
    return tasks


def can_be_filled(key: Key, data_dir: str) -> bool:
    """Whether the data of a figure exists; only BEIR sets may be missing."""
    return _family(key) != "beir" or all(_exists(name, data_dir) for name in averaged(key) or {key.task})


def _exists(name: str, data_dir: str) -> bool:
    return (Path(data_dir) / "beir" / name).is_dir()


def _family(key: Key) -> str:
    return "dev" if key.split == "dev" else _FAMILY.get(key.metric, FREQUENT)


def figures_of(folder: Path, columns: Iterable[Column]) -> dict[Key, float]:
    """The columns' figures in a run's scores files; averages over several files are computed here."""
    keys = {column.key for column in columns}
    figures: dict[Key, float] = {}
    for path in sorted(folder.glob("*.json")):
        if path.stem in {*_FAMILY.values(), "dev", FREQUENT} or path.stem.startswith("beir-"):
            scores = from_files(path.name, [path]).scores
            figures |= {key: score.mean for key, score in scores.items()}
    for key in keys:
        sets = [Key(task, *key[1:]) for task in sorted(averaged(key))]  # sorted for a reproducible sum
        if key not in figures and sets and all(one in figures for one in sets):
            figures[key] = average([{"value": figures[one], "n": 0} for one in sets])["value"]
    return {key: figures[key] for key in keys if key in figures}


def averaged(key: Key) -> frozenset[str]:
    """The tasks in an average; none for a single task."""
    sets = next(iter(records().values())).averaged
    return sets.get(key[1:], frozenset()) if key.task == AVERAGE else frozenset()


def count_of(metric: str) -> int:
    """The number of tokens that a `WITHOUT_TOKENS` metric removes; BadInput for any other metric."""
    before, after = WITHOUT_TOKENS.split("{}")
    number = metric.removeprefix(before).removesuffix(after)
    if metric != WITHOUT_TOKENS.format(number) or not number.isdecimal():
        raise BadInput(f"unknown metric '{metric}' in papers/tables")
    return int(number)
