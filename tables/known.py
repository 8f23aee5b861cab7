"""Runs whose folders are not here: figures that this command wrote elsewhere, or before the folders were deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from common.errors import BadInput
from eval.scores import Key
from tables.cells import FACTS, finished


@dataclass(frozen=True)
class Known:
    """Where a run comes from (`cells.FACTS`), and its figures."""

    facts: dict[str, Any]
    figures: dict[Key, float] = field(default_factory=dict)


def refuse_loss(path: Path, runs: Path, shown: Mapping[str, bool]) -> None:
    """Before anything is trained: what an earlier table at this place holds must be here, or be in the new one.

    Args:
        path: where the new TABLE.json goes.
        runs: where the runs are.
        shown: name of each run's folder of the new table -> whether its figures are known from `--known`.

    Raises:
        BadInput: figures would be lost; or the file there is no table.
    """
    if not path.is_file():
        return
    lost = [name for name in read_known([path]) if not shown.get(name) and finished(runs / name) is None]
    if lost:
        raise BadInput(
            f"{path} has figures of {len(lost)} runs that are not in {runs} ({lost[0]}, ...) and would be lost: keep "
            f"them by --known {path}, with all its rows and seeds, or give another --output"
        )


def read_known(paths: Sequence[Path]) -> dict[str, Known]:
    """The name of each run's folder -> what the JSON files of `python -m tables` say of it.

    A name holds a hash of the flags that decide a run's weights, so a figure is found again for the same row, seed and
    precision; the hash knows texts and models by the paths they were given as, not by what is in them.

    Raises:
        BadInput: a file that cannot be read or that this command did not write, two files that disagree on a run.
    """
    known: dict[str, Known] = {}
    for path in paths:
        for row in _rows(path):
            key = Key(*(row[name] for name in Key._fields))
            for seed, value in row["by_seed"].items():
                facts = row["provenance"][seed]
                name = PurePath(facts["run"]).name
                run = known.setdefault(name, Known({fact: facts.get(fact) for fact in FACTS}))
                if run.figures.setdefault(key, value) != value or _differ(run.facts, facts):
                    raise BadInput(f"{path}: {name}, {key}: another file has it otherwise; give one of the two")
    return known


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two files say something else of a run; older files say less."""
    return any(one[name] is not None and other.get(name) not in (None, one[name]) for name in FACTS)


def _rows(path: Path) -> list[dict]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: is no JSON; give a TABLE.json that this command wrote") from error
    if not isinstance(rows, list) or not all(map(_is_row, rows)):
        raise BadInput(f"{path}: holds no rows of a table; give a TABLE.json that this command wrote")
    return rows


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in Key._fields):
        return False
    values, facts = row.get("by_seed"), row.get("provenance")
    if not isinstance(values, dict) or not isinstance(facts, dict) or not values.keys() <= facts.keys():
        return False
    runs = all(isinstance(one, dict) and isinstance(one.get("run"), str) for one in facts.values())
    return runs and all(type(value) in (int, float) and -100 <= value <= 100 for value in values.values())
