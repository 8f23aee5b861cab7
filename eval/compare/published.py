"""Published numbers, read from `published.yaml`, which names the source of every figure; a test checks the file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from common.errors import BadInput
from common.files import read_yaml
from eval.compare.sides import Score, Side
from eval.scores import Key

FILE = Path(__file__).with_suffix(".yaml")
PREFIX = "published:"  # of a record's id on the command line
_BACKBONES = {  # model type, layers, width, vocabulary: the four that papers of this family report
    ("bert", 12, 768, 30522): "bert-base-uncased",
    ("bert", 24, 1024, 30522): "bert-large-uncased",
    ("roberta", 12, 768, 50265): "roberta-base",
    ("roberta", 24, 1024, 50265): "roberta-large",
}


@cache
def records() -> dict[str, Side]:
    """Every record by its id, read once."""
    content = read_yaml(FILE)
    averaged = {("test", "test", metric): frozenset(tasks) for metric, tasks in content["average_of"].items()}
    return {record["id"]: _side(record, content["sources"], averaged) for record in content["records"]}


def published(name: str) -> Side:
    """The record with this id; BadInput lists the known ones."""
    if name not in records():
        raise BadInput(f"'{PREFIX}{name}' is unknown; choose from: {', '.join(records())}")
    return records()[name]


def backbone_of(config) -> str | None:
    """The published backbone of this architecture and size."""
    size = (getattr(config, name, None) for name in ("num_hidden_layers", "hidden_size", "vocab_size"))
    return _BACKBONES.get((config.model_type, *size))


def _side(record: Mapping[str, Any], sources: Mapping[str, str], averaged: dict) -> Side:
    scores: dict[Key, Score] = {}
    for block in record["scores"]:
        for task, value in block["values"].items():
            key = Key(task, block.get("split", "test"), "test", block.get("metric", "spearman"))
            scores[key] = _score(value, record.get("runs", 1), block.get("n"), sources[block["source"]])
    return Side(
        label=PREFIX + record["id"],
        scores=scores,
        headline=tuple(scores),
        averaged=averaged,
        published=True,
        backbone=record["backbone"],
        spread=record.get("spread"),
        note=record.get("note"),
    )


def _score(value: float | Mapping[str, float], runs: int, examples: int | None, source: str) -> Score:
    numbers = value if isinstance(value, dict) else {"mean": value}
    std, low, high = (numbers.get(name) for name in ("std", "min", "max"))
    return Score(float(numbers["mean"]), runs, std, low, high, examples, source)
