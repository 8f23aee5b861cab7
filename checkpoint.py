"""The run folder: what is in it, whether this command may go on there, and from where.

A run owns its folder. `run.json` is written before the first step; the same command then starts, resumes or, when
the run is finished, changes nothing. Anything else in the folder is refused by name.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from errors import BadInput, CheckpointRefused

RUN_FILE = "run.json"
_NAME = re.compile(r"checkpoint-[0-9]+")
_STATE = ("model.safetensors", "optimizer.pt", "scheduler.pt")


class Start(NamedTuple):
    """Where a command begins: `finished`, or training from `checkpoint` (None: from step 0)."""

    finished: bool
    checkpoint: str | None


def open_run(folder: str, trajectory: dict[str, Any]) -> Start:
    """Decide how a command begins in `folder`; nothing is written.

    Args:
        folder: the output folder.
        trajectory: every setting that decides the weights, as JSON values.

    Raises:
        BadInput: the folder is a file or holds something that is not a run.
        CheckpointRefused: it holds a run of other settings (named), or only unreadable checkpoints.
    """
    root = Path(folder)
    if root.exists() and not root.is_dir():
        raise BadInput(f"{root}: is a file; --output_dir needs a folder")
    if not root.exists() or not any(root.iterdir()):
        return Start(False, None)
    if not (root / RUN_FILE).is_file():
        raise BadInput(f"{root}: not empty and not a run of this project; choose another --output_dir")
    run = read_run(root)
    _compare(root, run["trajectory"], trajectory)
    if run["status"] == "finished":
        return Start(True, None)
    return Start(False, last_complete(root))


def read_run(folder: Path) -> dict[str, Any]:
    """The contents of run.json; CheckpointRefused when it cannot be read."""
    try:
        run = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointRefused(f"{folder / RUN_FILE}: cannot be read ({error})") from error
    if not isinstance(run, dict) or not isinstance(run.get("trajectory"), dict) or "status" not in run:
        raise CheckpointRefused(f"{folder / RUN_FILE}: is not the record of a run ('trajectory' and 'status')")
    return run


def write_run(folder: str | Path, content: dict[str, Any]) -> None:
    """Write run.json whole or not at all."""
    target = Path(folder) / RUN_FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    partial.replace(target)


def _compare(root: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    changed = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    if changed:
        listed = "; ".join(f"{name}: {old.get(name)} there, {new.get(name)} now" for name in changed)
        raise CheckpointRefused(
            f"{root} holds a run with other settings ({listed}); use its settings to go on, or another --output_dir"
        )


def last_complete(root: Path) -> str | None:
    """The newest whole `checkpoint-N`, or None when there is none at all."""
    folders = [path for path in root.iterdir() if path.is_dir() and _NAME.fullmatch(path.name)]
    folders.sort(key=lambda path: int(path.name.partition("-")[2]), reverse=True)
    for folder in folders:
        if is_complete(folder):
            _check_best(root, folder)
            return str(folder)
    if folders:
        raise CheckpointRefused(f"{root}: none of the {len(folders)} checkpoints is whole; remove them to start anew")
    return None


def _check_best(root: Path, checkpoint: Path) -> None:
    """The best model up to a checkpoint lies in best/; without it the run would end with a worse one."""
    step = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8")).get("best_global_step")
    if step and not (root / "best" / "config.json").is_file():
        raise CheckpointRefused(f"{root / 'best'}: the best model (of step {step}) is gone; start anew elsewhere")


def is_complete(folder: Path) -> bool:
    """Whether a checkpoint has every file a resume reads; the Trainer writes trainer_state.json last."""
    try:
        json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return all((folder / name).is_file() for name in _STATE) and any(folder.glob("rng_state*.pth"))
