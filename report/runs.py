"""Read a run folder for the report: record, log and scores.

`run.json` must exist. The log, the scores or the per-example scores may be missing, as in a run that is still training.
"""

import json
import sys
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np

from common.errors import BadInput
from eval.compare.sides import Side, from_files
from eval.scores import AVERAGE, has_scores, read_items
from training.folder import RUN_FILE, read_run

SEARCH = "search.json"  # nDCG@10: `python -m eval RUN --tasks beir --output RUN/search.json`


@dataclass(frozen=True)
class RunFolder:
    """The contents of a run folder.

    Attributes:
        label: the run's name in the report.
        record: `run.json`.
        history: the lines of `log.jsonl`; empty if the file is missing.
        scores: the score and search files; None if they have no rows.
        items: as `eval.scores.read_items`.
    """

    label: str
    record: dict[str, Any]
    history: list[dict[str, Any]]
    scores: Side | None
    items: dict[tuple[str, ...], dict[str, np.ndarray]]


def read_run_folder(label: str, folder: Path, scores: str) -> RunFolder:
    """Read everything except the model; `scores` is the name of the score file in the folder.

    Raises:
        BadInput: run.json has no settings, or a log or score file is damaged; names file and line.
        CheckpointRefused: see `read_run`.
    """
    record = read_run(folder)
    if not isinstance(record.get("settings"), dict):
        raise BadInput(f"{folder / RUN_FILE}: not a run record ('settings' is required)")
    side, items = _scores(label, [folder / scores, folder / SEARCH, *sorted(folder.glob("beir-*.json"))])
    return RunFolder(label, record, read_log(folder), side, items)


def _scores(label: str, paths: Sequence[Path]) -> tuple[Side | None, dict]:
    """The scores of several files; the first file wins, and an average keeps the tasks of its own file."""
    files = [path for path in paths if has_scores(path)]
    if not files:
        return None, {}
    sides, items = [from_files(label, [path]) for path in files], [read_items(path) for path in files]
    scores = dict(ChainMap(*(side.scores for side in sides)))
    averages = [(side, key) for side in reversed(sides) for key in side.headline if key.task == AVERAGE]
    averaged = {key[1:]: side.averaged[key[1:]] for side, key in averages}
    headline = tuple(dict.fromkeys(key for side in sides for key in side.headline))
    return replace(sides[0], scores=scores, averaged=averaged, headline=headline), dict(ChainMap(*items))


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's log; none if it is missing, BadInput with the line if it is damaged."""
    path, lines = folder / "log.jsonl", []
    if not path.is_file():
        return lines
    try:
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if not (isinstance(line, dict) and "step" in line and all(map(_is_number, line.values()))):
                raise ValueError("not numbers with a 'step'")
            lines.append(line)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}:{len(lines) + 1}: the log is damaged ({error})") from error
    return lines


def _is_number(value: Any) -> bool:
    """Whether a value fits float64; NaN does, since a failed training logs it."""
    return type(value) is float or (type(value) is int and abs(value) <= sys.float_info.max)


def facts(record: dict[str, Any]) -> dict[str, str]:
    """The facts of a run for readers as text, without local paths."""
    settings = record["settings"]
    initial = settings.get("model_name_or_path")
    values = {
        "method": settings.get("method") or record.get("script"),
        "status": record["status"],
        "seed": settings.get("seed"),
        "steps": record.get("steps"),
        "best dev score": _best(_mapping(record.get("best"))),
        "initial model": None if initial is None else _last(initial),
        "text": _text(record),
        "batch size": settings.get("per_device_train_batch_size"),
        "learning rate": settings.get("learning_rate"),
        "maximum length in tokens": settings.get("max_length"),
        "temperature": settings.get("temperature", "none"),
        "weights of the losses (lambda)": _weights(settings),
        "pooling": settings.get("pooling"),
        "bfloat16": settings.get("bf16"),
        "device": _mapping(record.get("hardware")).get("device"),
        "seconds of the last start": record.get("seconds_of_last_start"),
        "commit": _commit(record),
        "versions": ", ".join(f"{name} {number}" for name, number in _mapping(record.get("versions")).items()),
    }
    return {name: _as_text(value) for name, value in values.items()}


def _weights(settings: dict[str, Any]) -> str:
    weights = {name: value for name, value in settings.items() if name.endswith("_weight") and _is_number(value)}
    return ", ".join(f"{name} {value:g}" for name, value in sorted(weights.items()) if value) or "none"


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _as_text(value: Any) -> str:
    if value is None or value == "":
        return "not recorded"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _commit(record: dict[str, Any]) -> str | None:
    commit, changed = record.get("commit"), record.get("changed_files")
    return f"{str(commit)[:12]}, {changed} changed files" if commit and changed else commit and str(commit)[:12]


def _text(record: dict[str, Any]) -> str | None:
    text = _mapping(_mapping(record.get("trajectory")).get("text"))
    files, rows = record.get("text_files") or text.get("files"), text.get("rows")
    names = ", ".join(_last(name) for name in files) if isinstance(files, list) else None
    return f"{names} ({rows:,} rows)" if names and isinstance(rows, int) else names


def _best(best: dict[str, Any]) -> str | None:
    value = best.get("value")
    valid = isinstance(value, int | float) and abs(value) <= 100  # a correlation in percent
    return f"{value:.2f} at step {best.get('step')}" if valid else None


def _last(path: object) -> str:
    """The last part of a path of any system; hides local folders."""
    return PureWindowsPath(str(path)).name
