"""Which tasks a table's columns need, and the figures of a run: one file of scores a family, read together."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch

from eval.compare.published import records
from eval.compare.sides import from_files
from eval.retrieval.beir import PAPER14
from eval.scores import AVERAGE, Key, average
from eval.tasks import Options, Task, tasks_named
from tables import cells
from tables.frequent import FrequentTokens, count_of
from tables.plans import Cell, Choice
from tables.specification import Column

_FAMILY = {"spearman": "sts", "accuracy": "transfer", "recall@1": "retrieval", "recall@5": "retrieval",
           "recall@10": "retrieval", "ndcg@10": "beir"}  # fmt: skip


def needed(columns: Iterable[Column], data_dir: str) -> dict[str, list[Task]]:
    """Name of a file of scores -> the tasks in it, for everything the columns show.

    BEIR's sets have a file each, and those that are not below DATA_DIR/beir are left out: the paper's fourteen are
    hardly ever all there, and what is missing is shown as such.
    """
    keys = [column.key for column in columns]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found: dict[str, list[Task]] = {}
    for family in dict.fromkeys(map(_family, keys)):
        if family == "dev":
            found[family] = tasks_named(["STS-B"], Options("dev"))
        elif family == "frequent_tokens":
            found[family] = [FrequentTokens(tuple(count_of(key.metric) for key in keys))]
        elif family == "beir":
            asked = PAPER14 if any(key.task == AVERAGE for key in keys) else [key.task for key in keys]
            there = [name for name in asked if _is_here(name, data_dir)]
            found |= {f"beir-{name}": tasks_named([name], Options(beir=(name,), device=device)) for name in there}
        else:
            found[family] = tasks_named([family], Options(device=device))
    return found


def can_be_filled(key: Key, data_dir: str) -> bool:
    """Whether `needed` finds what a column shows: all but BEIR's sets, whose files may not be here."""
    return _family(key) != "beir" or all(_is_here(name, data_dir) for name in averaged(key) or {key.task})


def _is_here(name: str, data_dir: str) -> bool:
    return (Path(data_dir) / "beir" / name).is_dir()


def _family(key: Key) -> str:
    return "dev" if key.split == "dev" else _FAMILY.get(key.metric, "frequent_tokens")


def fill(cell: Cell, choice: Choice, seed: int, tasks: dict[str, list[Task]]) -> None:
    """Train a cell's run where it is missing and score it where scores are missing."""
    cell.fill(choice, seed)
    folder = cell.folder(choice, seed)
    for name, some in tasks.items():
        cells.score(folder, name, some, choice.data_dir, cell.model, pooling=cell.pooling, bf16=choice.bf16)


def values(folder: Path, columns: Iterable[Column]) -> dict[Key, float]:
    """The columns' figures in a run's files of scores; an average of sets with files of their own is made here."""
    keys = {column.key for column in columns}
    found: dict[Key, float] = {}
    for path in sorted(folder.glob("*.json")):
        if path.stem in {*_FAMILY.values(), "dev", "frequent_tokens"} or path.stem.startswith("beir-"):
            scores = from_files(path.name, [path]).scores
            found |= {key: score.mean for key, score in scores.items()}
    for key in keys:
        sets = [Key(task, *key[1:]) for task in sorted(averaged(key))]  # one order, so that a sum has one value
        if key not in found and sets and all(one in found for one in sets):
            found[key] = average([{"value": found[one], "n": 0} for one in sets])["value"]
    return {key: found[key] for key in keys if key in found}


def averaged(key: Key) -> frozenset[str]:
    """The tasks behind an average; nothing for a single task."""
    sets = next(iter(records().values())).averaged
    return sets.get(key[1:], frozenset()) if key.task == AVERAGE else frozenset()
