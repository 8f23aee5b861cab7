"""run.json: what a run was asked to do and with what, written before its first step and at its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from errors import CheckpointRefused
from training.manifest import sync

RUN_FILE = "run.json"
PARTIAL = "run.partial"


def read_run(folder: Path) -> dict[str, Any]:
    """The contents of run.json; CheckpointRefused when it cannot be read."""
    try:
        run = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointRefused(f"{folder / RUN_FILE}: cannot be read ({error})") from error
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
