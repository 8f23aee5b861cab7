"""Figures of runs without a local folder: read from the TABLE.json that a command writes again."""

from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from common.errors import BadInput
from common.files import read_json
from eval.scores import Key
from papers.runs import FACTS

REMEDY = "give another --output"


@dataclass(frozen=True)
class ImportedRun:
    """The facts of a run (`runs.FACTS`) and its figures."""

    facts: dict[str, Any]
    figures: dict[Key, float] = field(default_factory=dict)


def read_imported(path: Path) -> dict[str, ImportedRun]:
    """Every run in a file written by `python -m papers`, by folder name; none if there is no file.

    The name contains a hash of the flags that determine a run's weights, so figures match the same row, seed and
    precision. The hash covers the paths of texts and models, not their content.

    Raises:
        BadInput: the file cannot be read or was not written by this command.
    """
    imported: dict[str, ImportedRun] = {}
    for row in read_json(path, "a results table", REMEDY, kind=list) if path.is_file() else []:
        try:
            for seed, value in row["by_seed"].items():
                facts = row["provenance"][seed]
                run = ImportedRun({fact: facts.get(fact) for fact in FACTS})
                figures = imported.setdefault(PurePath(facts["run"]).name, run).figures
                figures[Key.of(row)] = value
                if not -100 <= value <= 100:
                    raise ValueError(value)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{path}: not a results table; {REMEDY}") from error
    return imported
