"""Read a run folder for the report: record, log and scores.

`run.json` must exist. The log or the scores may be missing, as in a run that is still training.
"""

from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from eval.compare.sides import Side, from_files
from eval.scores import has_scores
from training.curves import describe_gap, read_log
from training.folder import read_run


@dataclass(frozen=True)
class RunFolder:
    """The contents of a run folder.

    Attributes:
        label: the run's name in the report.
        record: `run.json`.
        history: the lines of `log.jsonl`; empty if the file is missing.
        scores: the score file; None without rows.
    """

    label: str
    record: dict[str, Any]
    history: list[dict[str, Any]]
    scores: Side | None


def read_run_folder(label: str, folder: Path, scores: str) -> RunFolder:
    """Read a run; `scores` is the name of the score file in the folder.

    Raises:
        BadInput: a log or score file is damaged; names file and line.
        CheckpointRefused: see `read_run`.
    """
    record, history, path = read_run(folder), read_log(folder), folder / scores
    return RunFolder(
        label, record, history, from_files(label, [path]) if has_scores(path) else None
    )


def findings(run: RunFolder) -> list[str | None]:
    """The run's recorded findings or, while it trains, those of its log so far."""
    return run.record.get("findings") or [describe_gap(run.history)]


def facts(record: dict[str, Any]) -> dict[str, str]:
    """The facts of a run for readers as text, without local paths."""
    settings, best = record.get("settings", {}), record.get("best")
    initial, commit, changed = (
        settings.get("model_name_or_path"),
        record.get("commit"),
        record.get("changed_files"),
    )
    text = record["trajectory"].get("text") or {}
    files, rows = record.get("text_files") or text.get("files"), text.get("rows")
    weights = {
        name: value for name, value in settings.items() if name.endswith("_weight") and value
    }
    values = {
        "method": settings.get("method") or record.get("script"),
        "status": record["status"],
        "seed": settings.get("seed"),
        "steps": record.get("steps"),
        "best dev score": best and f"{best['value']:.2f} at step {best['step']}",
        "initial model": initial and _last(initial),
        "text": files and f"{', '.join(map(_last, files))} ({rows:,} rows)",
        "batch size": settings.get("per_device_train_batch_size"),
        "learning rate": settings.get("learning_rate"),
        "maximum length in tokens": settings.get("max_length"),
        "temperature": settings.get("temperature", "none"),
        "weights of the losses (lambda)": ", ".join(
            f"{k} {v:g}" for k, v in sorted(weights.items())
        )
        or "none",
        "pooling": settings.get("pooling"),
        "bfloat16": settings.get("bf16"),
        "device": record.get("hardware", {}).get("device"),
        "seconds of the last start": record.get("seconds_of_last_start"),
        "commit": commit and commit[:12] + (f", {changed} changed files" if changed else ""),
        "versions": ", ".join(
            f"{name} {number}" for name, number in record.get("versions", {}).items()
        ),
    }
    shown = {
        name: f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in values.items()
    }
    return {
        name: "not recorded" if values[name] in (None, "") else text for name, text in shown.items()
    }


def _last(path: str) -> str:
    """The last part of a path of any system; hides local folders."""
    return PureWindowsPath(path).name
