"""Read a run folder for the report: record, log and scores.

`run.json` must exist. The log or the scores may be missing, as in a run that is still training.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.compare.sides import Side, from_files
from eval.scores import has_scores, scores_of
from export.text import short
from training.curves import describe_collapse, describe_conditioning, read_log
from training.run_folder import read_run, starts


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


def read_run_folder(label: str, folder: Path) -> RunFolder:
    """Read a run.

    Raises:
        BadInput: a log or score file is damaged; names file and line.
        CheckpointRefused: see `read_run`.
    """
    scores = scores_of(folder)
    side = from_files(label, [scores]) if has_scores(scores) else None
    return RunFolder(label, read_run(folder), read_log(folder), side)


def findings(run: RunFolder) -> list[str]:
    """The run's recorded findings or, while it trains, those of its log so far."""
    so_far = [describe_conditioning(run.history), describe_collapse(run.history)]
    found = run.record.get("findings") or so_far
    return [words for words in found if words]


def _checkpoint(record: dict[str, Any]) -> str:
    """The name of the checkpoint that the run began with; of a folder, with digits of its hash."""
    name = record.get("settings", {}).get("model_name_or_path") or ""
    start = record["trajectory"].get("start")
    return short(name) if not name or start in (None, name) else f"{short(name)} ({start[:12]})"


def facts(record: dict[str, Any]) -> dict[str, str]:
    """The facts of a run for readers as text, without local paths."""
    settings, best = record.get("settings", {}), record.get("best")
    text = record["trajectory"].get("text") or {}
    files = record.get("text_files") or text.get("files")
    weights = []
    for name, value in sorted(settings.items()):
        if name.endswith("_weight") and value:
            weights.append(f"{name} {value:g}")
    devices, commits, versions = [], [], []
    for start in starts(record):
        commit = (start.get("commit") or "")[:12]
        if commit and start.get("changed_files"):
            commit += f", {start['changed_files']} changed files"
        commits.append(commit)
        devices.append((start.get("hardware") or {}).get("device") or "")
        of_start = (start.get("versions") or {}).items()
        versions.append(", ".join(f"{name} {version}" for name, version in of_start))
    values = {
        "method": settings.get("method") or record.get("script"),
        "status": record["status"],
        "seed": settings.get("seed"),
        "steps": record.get("steps"),
        "best dev score": f"{best['value']:.2f} at step {best['step']}" if best else None,
        "checkpoint": _checkpoint(record),
        "text": f"{', '.join(map(short, files))} ({text.get('rows'):,} rows)" if files else None,
        "batch size": settings.get("per_device_train_batch_size"),
        "learning rate": settings.get("learning_rate"),
        "maximum length in tokens": settings.get("max_length"),
        "temperature": settings.get("temperature", "none"),
        "weights of the losses (lambda)": ", ".join(weights) or "none",
        "pooling": settings.get("pooling"),
        "bfloat16": settings.get("bf16"),
        "device": "; then ".join(dict.fromkeys(devices)),
        "seconds of the last start": record.get("seconds_of_last_start"),
        "commit": "; then ".join(dict.fromkeys(commits)),
        "versions": "; then ".join(dict.fromkeys(versions)),
    }
    shown = {}
    for name, value in values.items():
        if value is None or value == "":
            value = "not recorded"
        shown[name] = f"{value:g}" if isinstance(value, float) else str(value)
    return shown
