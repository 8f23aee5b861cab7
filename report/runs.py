"""A run folder as the report reads it: record, log and scores; what is missing is said, what is broken refused.

`run.json` must be there. A log, scores or figures of the examples may be missing, as in a run that still trains.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np

from common.errors import BadInput, newer_format
from eval.compare.scores import Side, from_files, read_items

FORMAT = 1  # of run.json, as in training/record.py, which the report does not know


@dataclass(frozen=True)
class RunFolder:
    """What a run left behind.

    Attributes:
        label: what the run is called in the report.
        record: `run.json`.
        history: the lines of `log.jsonl`; none where there is no such file.
        scores: the figures of the file of scores; None where it is missing or holds no row.
        items: (task, split, mode) -> the figures of every example, see `eval.compare.scores.read_items`.
    """

    label: str
    record: dict[str, Any]
    history: list[dict[str, Any]]
    scores: Side | None
    items: dict[tuple[str, ...], dict[str, np.ndarray]]


def read_run_folder(label: str, folder: Path, scores: str) -> RunFolder:
    """Read everything but the model.

    Args:
        label: what the run is called.
        folder: the run's folder.
        scores: name of the file of scores in it.

    Raises:
        BadInput: no run folder, or a file in it that is damaged; with the file and the line.
    """
    path = folder / "run.json"
    if not path.is_file():
        raise BadInput(f"{folder}: no run folder (there is no run.json, which every training command writes)")
    record = _object(_read(path), str(path))
    if type(written := record.get("format")) is int and written > FORMAT:
        raise BadInput(newer_format(str(path), written, FORMAT))
    if not isinstance(record.get("settings"), dict) or "status" not in record:
        raise BadInput(f"{path}: is not the record of a run ('settings' and 'status' are needed)")
    side, items = _scores(label, folder / scores)
    return RunFolder(label, record, _history(folder / "log.jsonl"), side, items)


def _scores(label: str, path: Path) -> tuple[Side | None, dict]:
    # A run with --test_tasks none writes an empty list.
    if not path.is_file() or "".join(_read(path).split()) == "[]":
        return None, {}
    return from_files(label, [path]), read_items(path)


def _history(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    lines = [_object(text, f"{path}:{n}") for n, text in enumerate(_read(path).splitlines(), 1)]
    for number, line in enumerate(lines, 1):
        wrong = [f"'{name}' is no number" for name, value in line.items() if type(value) not in (int, float)]
        wrong += [] if "step" in line else ["no 'step'"]
        if wrong:
            raise BadInput(f"{path}:{number}: {wrong[0]}; the log is damaged")
    return lines


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 (byte {error.start})") from error


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}: no JSON ({' '.join(str(error).split())})") from error
    if not isinstance(found, dict):
        raise BadInput(f"{where}: a JSON object is needed")
    return found


def facts(record: dict[str, Any]) -> dict[str, str]:
    """What a reader wants to know of a run, in words, no path of a machine; `not recorded` where nothing is said."""
    return {name: _words(find(record)) for name, find in _FACTS.items()}


def _setting(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda record: record["settings"].get(name)


def _under(first: str, second: str) -> Callable[[dict[str, Any]], Any]:
    return lambda record: _mapping(record.get(first)).get(second)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _words(value: Any) -> str:
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


def _best(record: dict[str, Any]) -> str | None:
    best = _mapping(record.get("best"))
    value = best.get("value")
    known = isinstance(value, int | float) and abs(value) <= 100  # a correlation in percent; JSON has larger integers
    return f"{value:.2f} at step {best.get('step')}" if known else None


def _start(record: dict[str, Any]) -> str | None:
    start = record["settings"].get("model_name_or_path")
    return None if start is None else _last(start)


def _last(path: object) -> str:
    """The end of a path of any system, so that no machine's folders are published."""
    return PureWindowsPath(str(path)).name


def _versions(record: dict[str, Any]) -> str | None:
    return ", ".join(f"{name} {number}" for name, number in _mapping(record.get("versions")).items()) or None


_FACTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "method": lambda record: record["settings"].get("method") or record.get("script"),
    "status": lambda record: record["status"],
    "seed": _setting("seed"),
    "steps": lambda record: record.get("steps"),
    "best dev score": _best,
    "start checkpoint": _start,
    "text": _text,
    "batch size": _setting("per_device_train_batch_size"),
    "learning rate": _setting("learning_rate"),
    "pooling": _setting("pooling"),
    "bfloat16": _setting("bf16"),
    "device": _under("hardware", "device"),
    "seconds of the last start": lambda record: record.get("seconds_of_last_start"),
    "commit": _commit,
    "versions": _versions,
}
