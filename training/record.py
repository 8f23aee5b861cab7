"""run.json: what a run was asked to do and with what, written before its first step and at its end."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.errors import BadInput, CheckpointRefused, newer_format
from common.files import sha256, sync
from models.loading import read_tensors

logger = logging.getLogger(__name__)
RUN_FILE = "run.json"
PARTIAL = "run.partial"
FORMAT = 1
WEIGHTS = ("model.safetensors", "aux_head.safetensors")


def read_run(folder: Path) -> dict[str, Any]:
    """The contents of run.json; CheckpointRefused when it cannot be read, or is of a newer format."""
    try:
        run = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointRefused(f"{folder / RUN_FILE}: cannot be read ({error})") from error
    if isinstance(run, dict) and type(found := run.get("format")) is int and found > FORMAT:
        raise CheckpointRefused(newer_format(str(folder / RUN_FILE), found, FORMAT))
    kinds = {"trajectory": dict, "status": str}
    if not isinstance(run, dict) or any(not isinstance(run.get(name), kind) for name, kind in kinds.items()):
        raise CheckpointRefused(f"{folder / RUN_FILE}: is not the record of a run ({', '.join(kinds)})")
    return run


def run_id_of(folder: Path) -> str:
    """What the checkpoints of a run bear; CheckpointRefused for a run from before they had a manifest."""
    run_id = read_run(folder).get("run_id")
    if not isinstance(run_id, str):
        raise CheckpointRefused(f"{folder}: an older version's run cannot be resumed; choose another folder")
    return run_id


def write_run(folder: str | Path, content: dict[str, Any]) -> None:
    """Write run.json whole or not at all."""
    target = Path(folder) / RUN_FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(PARTIAL)
    partial.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    sync(partial)
    partial.replace(target)
    sync(target.parent)


def check_result(folder: Path, run: Mapping[str, Any]) -> None:
    """CheckpointRefused where a finished run's result is not what it wrote; other files in the folder may change.

    Older versions recorded no sha256 of the result. For their runs it is only checked that the weights can be read, and
    a warning says so.
    """
    recorded = run.get("result")
    if isinstance(recorded, dict):
        problem = next(filter(None, (_changed(folder / name, known) for name, known in recorded.items())), None)
    else:
        said = "an older version recorded no sha256 of its result; only that the weights can be read is checked"
        logger.warning("%s: %s", folder, said)
        problem = _unreadable(folder)
    if problem:
        raise CheckpointRefused(
            f"{folder}: the run has finished, but {problem}; put the file back, or remove the folder to train again"
        )


def _changed(path: Path, known: str) -> str | None:
    if not path.is_file():
        return f"{path.name} is missing"
    return None if sha256(path) == known else f"{path.name} has changed since"


def _unreadable(folder: Path) -> str | None:
    files = [folder / name for name in WEIGHTS if (folder / name).is_file()]
    if folder / WEIGHTS[0] not in files:
        return f"{WEIGHTS[0]} is missing"
    try:
        for file in files:
            read_tensors(file)
    except BadInput as error:
        return str(error)
    return None
