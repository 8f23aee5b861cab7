"""Figures of runs without a local folder: read from a TABLE.json of another machine, or of deleted runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from common.errors import BadInput
from common.files import read_json
from eval.scores import Key
from papers.runs import FACTS, finished

_REMEDY = "give a TABLE.json written by this command"


@dataclass(frozen=True)
class ImportedRun:
    """The facts of a run (`runs.FACTS`) and its figures."""

    facts: dict[str, Any]
    figures: dict[Key, float] = field(default_factory=dict)


def refuse_loss(path: Path, runs: Path, imported: Mapping[str, bool]) -> None:
    """Check before training that a new TABLE.json keeps all figures of the file it overwrites.

    `imported` says for each run of the new table, by folder name, whether its figures are imported.

    Raises:
        BadInput: figures would be lost, or the existing file is not a table.
    """
    if not path.is_file():
        return
    lost = [name for name in read_imported([path]) if not imported.get(name) and finished(runs / name) is None]
    if lost:
        raise BadInput(
            f"{path} has figures of {len(lost)} runs that are not in {runs} ({lost[0]}, ...) and would be lost; keep "
            f"them with --known {path} and all its rows and seeds, or give another --output"
        )


def read_imported(paths: Sequence[Path]) -> dict[str, ImportedRun]:
    """Every run in files written by `python -m papers`, by folder name.

    The name contains a hash of the flags that determine a run's weights, so figures match the same row, seed and
    precision. The hash covers the paths of texts and models, not their content.

    Raises:
        BadInput: a file cannot be read or was not written by this command, or two files disagree on a run.
    """
    imported: dict[str, ImportedRun] = {}
    for path in paths:
        rows = read_json(path, "a results table", _REMEDY, kind=list)
        if not all(map(_is_row, rows)):
            raise BadInput(f"{path}: not a results table; {_REMEDY}")
        for row in rows:
            key = Key.of(row)
            for seed, value in row["by_seed"].items():
                facts = row["provenance"][seed]
                name = PurePath(facts["run"]).name
                run = imported.setdefault(name, ImportedRun({fact: facts.get(fact) for fact in FACTS}))
                if run.figures.setdefault(key, value) != value or _differ(run.facts, facts):
                    raise BadInput(f"{path}: {name}, {key}: differs from another --known file; give only one of them")
    return imported


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two files disagree on a run; files of older versions have fewer facts."""
    return any(one[name] is not None and other.get(name) not in (None, one[name]) for name in FACTS)


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in Key._fields):
        return False
    values, facts = row.get("by_seed"), row.get("provenance")
    if not isinstance(values, dict) or not isinstance(facts, dict) or not values.keys() <= facts.keys():
        return False
    runs = all(isinstance(one, dict) and isinstance(one.get("run"), str) for one in facts.values())
    return runs and all(type(value) in (int, float) and -100 <= value <= 100 for value in values.values())
