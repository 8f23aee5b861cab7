"""Published numbers as one side of a comparison; the data is `published.yaml`, with the source of every figure."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from errors import BadInput
from eval.compare.scores import AVERAGE, Key, Score, Side

FILE = Path(__file__).with_suffix(".yaml")
PREFIX = "published:"
_RECORD = {"id", "backbone", "scores", "runs", "spread", "note"}
_BLOCK = {"source", "values", "split", "metric", "n"}
_REPEATED = {"mean", "std", "min", "max"}


class _Loader(yaml.SafeLoader):
    """YAML's SafeLoader that refuses a key written twice; the plain one keeps the last without a word."""

    def construct_mapping(self, node, deep=False):
        names = [key.value for key, _ in node.value]
        for name, (key, _) in zip(names, node.value, strict=True):
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key '{name}' twice", key.start_mark)
        return super().construct_mapping(node, deep)


def load(path: Path = FILE) -> dict[str, Side]:
    """Every record by its id.

    Raises:
        BadInput: the file cannot be read, or has an id or key twice, an unknown or a missing key, an unknown source
            or spread, or a figure that is no number.
    """
    content = read_yaml(path)
    check_keys(path, "the file", content, {"average_of", "sources", "records"}, {"average_of", "sources", "records"})
    averaged = {("test", "test", metric): frozenset(tasks) for metric, tasks in content["average_of"].items()}
    found: dict[str, Side] = {}
    for record in content["records"]:
        side = _side(path, record, content["sources"], averaged)
        if record["id"] in found:
            raise BadInput(f"{path}: id '{record['id']}' twice")
        found[record["id"]] = side
    for name, side in found.items():
        if side.spread is not None and side.spread not in found:
            raise BadInput(f"{path}: {name}: spread '{side.spread}' is no record")
    return found


@cache
def records() -> dict[str, Side]:
    """Every record of `published.yaml` by its id, read once."""
    return load()


def published(name: str) -> Side:
    """The record with this id; BadInput lists the known ones."""
    if name not in records():
        raise BadInput(f"'{PREFIX}{name}' is unknown; choose from: {', '.join(records())}")
    return records()[name]


def _side(path: Path, record: Any, sources: dict[str, str], averaged: dict) -> Side:
    check_keys(path, "a record", record, {"id", "backbone", "scores"}, _RECORD)
    where, runs = record["id"], record.get("runs", 1)
    if type(runs) is not int or runs < 1:
        raise BadInput(f"{path}: {where}: runs is {runs}; a number from 1 is needed")
    scores: dict[Key, Score] = {}
    for block in record["scores"]:
        check_keys(path, where, block, {"source", "values"}, _BLOCK)
        if block["source"] not in sources:
            raise BadInput(f"{path}: {where}: source '{block['source']}' is not listed under sources")
        metric = block.get("metric", "spearman")
        for task, value in block["values"].items():
            key = Key(task, block.get("split", "test"), "test", metric)
            if key in scores:
                raise BadInput(f"{path}: {where}: {key} twice")
            scores[key] = _score(path, f"{where}: {key}", value, runs, block.get("n"), sources[block["source"]])
            if task == AVERAGE and key[1:] not in averaged:
                raise BadInput(f"{path}: {where}: average_of does not say what {key} is the mean of")
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


def _score(path: Path, where: str, value: Any, runs: int, n: int | None, source: str) -> Score:
    if isinstance(value, dict):
        check_keys(path, where, value, {"mean", "std"}, _REPEATED)
        if runs < 2:
            raise BadInput(f"{path}: {where} has a standard deviation but its record one run")
    numbers = value if isinstance(value, dict) else {"mean": value}
    for name, number in numbers.items():
        if type(number) not in (int, float) or not math.isfinite(number):
            raise BadInput(f"{path}: {where}: {name} is '{number}', which is no number")
    std, low, high = (numbers.get(name) for name in ("std", "min", "max"))
    return Score(float(numbers["mean"]), runs, std, low, high, n, source)


def read_yaml(path: Path) -> Any:
    """What a YAML file of plain values holds; BadInput where it cannot be read, has a tag, or a key twice."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, ValueError) as error:
        raise BadInput(f"{path}: not the expected YAML: {' '.join(str(error).split())}") from error


def check_keys(path: Path, where: str, mapping: Any, needed: set[str], known: set[str]) -> None:
    """BadInput unless `mapping` is one, has every key of `needed` and none outside `known`."""
    if not isinstance(mapping, dict):
        raise BadInput(f"{path}: {where}: a mapping with {', '.join(sorted(needed))} is needed")
    for name in sorted(needed - set(mapping)):
        raise BadInput(f"{path}: {where}: key '{name}' is missing")
    for name in sorted(set(mapping) - known):
        raise BadInput(f"{path}: {where}: unknown key '{name}'")
