"""The tasks of a table's columns, and their figures in a run's scores files, one file per task family."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.errors import BadInput
from eval.analyse.tokens import TokenAverages, most_frequent
from eval.compare.sides import from_files, records
from eval.encode import Encode, device_here
from eval.retrieval.beir import PAPER14
from eval.scores import AVERAGE, Key, Result, average, row
from eval.sts import STS_TEST, Pairs, merged
from eval.tasks import Options, Task, tasks_named
from models.pooling import pooling_named
from papers.specification import Column

FREQUENT = "frequent_tokens"
WITHOUT_TOKENS = "spearman without {} tokens"  # the metric of ConSERT's figure 4
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
            tasks[family] = [FrequentTokens(tuple(count_of(key.metric) for key in keys))]
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


@dataclass(frozen=True)
class FrequentTokens:
    """ConSERT's figure 4: the average of the seven STS sets without the most frequent tokens.

    Tokens are counted over STS-B test, as in the figure; `eval.analyse.tokens` does the same for a single set. Scoring
    gives one row per number in `removed`: the mean over the seven sets, each rounded to two decimals.
    """

    removed: tuple[int, ...]
    name: str = AVERAGE
    split: str = "test"

    def load(self, data_dir: str | Path) -> dict[str, Pairs]:
        return {task.name: merged(task.load(data_dir)) for task in STS_TEST}

    def score(self, encode: Encode, data_dir: str | Path) -> Result:
        """`encode.module` is a SentenceEncoder, whose own pooling and head are not used."""
        sets = self.load(data_dir)
        pooling = pooling_named("avg_top2")  # ConSERT section 4.1
        tokens = TokenAverages(encode, encode.module.backbone, pooling.pool)
        frequent = most_frequent(tokens.ids(sets["STS-B"].left + sets["STS-B"].right), max(self.removed))
        scores = np.array([tokens.spearman(pairs, frequent, self.removed) for pairs in sets.values()])  # (sets, K)
        count = sum(len(pairs.gold) for pairs in sets.values())
        means = zip(self.removed, scores.round(2).mean(axis=0), strict=True)
        rows = [row(AVERAGE, "test", WITHOUT_TOKENS.format(k), "mean of tasks", count, mean) for k, mean in means]
        return Result(rows)
