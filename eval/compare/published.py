"""Published numbers as one side of a comparison; the data is `published.yaml`, with the source of every figure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any

from common.errors import BadInput
from common.files import read_yaml
from eval.compare.sides import Score, Side
from eval.scores import AVERAGE, Key, is_finite

FILE = Path(__file__).with_suffix(".yaml")
PREFIX = "published:"
_FILE = {"average_of": dict, "sources": dict, "records": list}
_RECORD = {"id": str, "backbone": str, "scores": list, "runs": object, "spread": str, "note": str}
_BLOCK = {"source": str, "values": dict, "split": str, "metric": str, "n": int}
_REPEATED = dict.fromkeys(("mean", "std", "min", "max"), object)


def load(path: Path = FILE) -> dict[str, Side]:
    """Every record by its id.

    Raises:
        BadInput: the file cannot be read, or has an id or key twice, an unknown or a missing key, a value of another
            kind, an unknown source or spread, or a figure that is no number.
    """
    content = read_yaml(path)
    check_keys(path, "the file", content, set(_FILE), _FILE)
    check_values(path, "average_of", content["average_of"], list)
    check_values(path, "sources", content["sources"], str)
    averaged = {("test", "test", metric): frozenset(map(str, tasks)) for metric, tasks in content["average_of"].items()}
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
        check_values(path, where, block["values"], object)
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
        if not is_finite(number):
            raise BadInput(f"{path}: {where}: {name} is '{number}', which is no number")
    std, low, high = (numbers.get(name) for name in ("std", "min", "max"))
    return Score(float(numbers["mean"]), runs, std, low, high, n, source)


def check_keys(path: Path, where: str, mapping: Any, needed: set[str], known: Mapping[str, type | UnionType]) -> None:
    """BadInput unless `mapping` is one, has every key of `needed` and none but `known` ones, of their kinds."""
    if not isinstance(mapping, dict):
        raise BadInput(f"{path}: {where}: a mapping with {', '.join(sorted(needed))} is needed")
    for name in sorted(needed - set(mapping)):
        raise BadInput(f"{path}: {where}: key '{name}' is missing")
    for name in sorted(set(mapping) - set(known), key=str):
        raise BadInput(f"{path}: {where}: unknown key '{name}'")
    for name, value in mapping.items():
        _check_kind(path, where, name, value, known[name])


def check_values(path: Path, where: str, mapping: dict, kind: type | UnionType) -> None:
    """BadInput unless the keys are words and the values of one kind."""
    for name, value in mapping.items():
        if not isinstance(name, str):
            raise BadInput(f"{path}: {where}: the key '{name}' is no word; put it in quotes")
        _check_kind(path, where, name, value, kind)


def _check_kind(path: Path, where: str, name: str, value: Any, kind: type | UnionType) -> None:
    number = isinstance(value, bool) and kind not in (bool, object)
    if number or not isinstance(value, kind):
        raise BadInput(
            f"{path}: {where}: '{name}' is {type(value).__name__}; {getattr(kind, '__name__', kind)} is needed"
        )
