"""The run folder: what is in it, whether this command may go on there, and from where.

A run owns its folder. `run.json` is written before the first step; the same command then starts, resumes or, when
the run is finished, changes nothing. Anything else in the folder is refused by name.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any, NamedTuple

from common.errors import BadInput, CheckpointRefused
from training.manifest import owner, problem, publish, recover, remove
from training.record import PARTIAL, RUN_FILE, read_run, run_id_of
from training.trajectory import differing, is_longer

logger = logging.getLogger(__name__)
LOCK_FILE = ".lock"
BEST = "best"
STAGING = ".checkpoint.partial"
_NAME = re.compile(r"checkpoint-[0-9]+")
_STATE = ("model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json")


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
        CheckpointRefused: it holds a run of other settings (named), or only checkpoints that are not valid.
    """
    status = status_of(folder, trajectory)
    if status != "running":
        return Start(status == "finished", None)
    return Start(False, last_valid(Path(folder), run_id_of(Path(folder))))


def status_of(folder: str | Path, trajectory: dict[str, Any]) -> str:
    """`new`, `running` or `finished`; refuses what `open_run` refuses, except checkpoints, which are not looked at."""
    root = Path(folder)
    if root.exists() and not root.is_dir():
        raise BadInput(f"{root}: is a file; --output_dir needs a folder")
    if not root.exists() or not {path.name for path in root.iterdir()} - {LOCK_FILE, PARTIAL}:
        return "new"
    if not (root / RUN_FILE).is_file():
        raise BadInput(f"{root}: not empty and not a run of this project; choose another --output_dir")
    run = read_run(root)
    if run["status"] == "running" and not checkpoints(root) and not (root / BEST).exists():
        return "new"  # it ended before it saved anything: other settings lose nothing
    longer = is_longer(run["trajectory"], trajectory)
    _compare(root, run["trajectory"], trajectory | ({"max_steps": run["trajectory"]["max_steps"]} if longer else {}))
    return "finished" if run["status"] == "finished" and not longer else "running"


def _compare(root: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    changed = differing(old, new)
    if changed:
        listed = "; ".join(f"{name}: {old.get(name)} there, {new.get(name)} now" for name in changed)
        raise CheckpointRefused(
            f"{root} holds a run with other settings ({listed}); use its settings to go on, or another --output_dir"
        )


def checkpoints(root: Path) -> list[Path]:
    """Every folder named `checkpoint-N`, the newest first."""
    folders = [path for path in root.iterdir() if path.is_dir() and _NAME.fullmatch(path.name)]
    return sorted(folders, key=_step, reverse=True)


def _step(folder: Path) -> int:
    return int(folder.name.partition("-")[2])


def last_valid(root: Path, run_id: str) -> str | None:
    """The newest `checkpoint-N` that is byte for byte what this run wrote, or None when there is none at all.

    Raises:
        CheckpointRefused: there are checkpoints, but none is valid: a run must not silently begin anew.
    """
    reasons = []
    for folder in checkpoints(root):
        reason = checkpoint_problem(folder, run_id)
        if reason is None:
            for line in reasons:
                logger.warning("%s; passed over", line)
            _check_best(root, folder, run_id)
            return str(folder)
        reasons.append(f"{folder.name}: {reason}")
    if reasons:
        raise CheckpointRefused(
            f"{root}: none of the {len(reasons)} checkpoints is valid ({'; '.join(reasons)}); remove them to start anew"
        )
    return None


def checkpoint_problem(folder: Path, run_id: str) -> str | None:
    """Why a run must not go on from a checkpoint, or None; see `training.manifest.problem`."""
    reason = problem(folder, run_id, _STATE)
    if reason is None and not any(folder.glob("rng_state*.pth")):
        return "rng_state.pth is missing"
    return reason


def state_of(checkpoint: str | Path) -> dict[str, Any]:
    """The Trainer's state in a valid checkpoint: `global_step`, `max_steps`, `best_metric`, ..."""
    path = Path(checkpoint) / "trainer_state.json"
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointRefused(f"{path}: cannot be read ({error})") from error
    if not isinstance(state, dict) or any(type(state.get(name)) is not int for name in ("global_step", "max_steps")):
        raise CheckpointRefused(f"{path}: is not the state of a training (global_step, max_steps)")
    return state


def best_of(root: Path, run_id: str) -> dict[str, Any]:
    """Step and value of the best model; CheckpointRefused when best/ is not what this run wrote."""
    reason = problem(root / BEST, run_id, ("best.json", "config.json"))
    if reason is not None:
        raise CheckpointRefused(f"{root / BEST}: the best model is gone ({reason}); start anew elsewhere")
    try:
        found = json.loads((root / BEST / "best.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointRefused(f"{root / BEST}: best.json cannot be read ({error}); start anew elsewhere") from error
    return found if isinstance(found, dict) else {}


def _check_best(root: Path, checkpoint: Path, run_id: str) -> None:
    """The best model up to a checkpoint lies in best/; without it the run would end with a worse one.

    The checkpoint says what that model scored. A best model of a later step is found and written again by the resumed
    run, whatever is in its folder.
    """
    value = state_of(checkpoint).get("best_metric")
    if value is None or _best_step(root) > _step(checkpoint):
        return
    found = best_of(root, run_id)
    if found.get("value") != value:
        raise CheckpointRefused(
            f"{root / BEST}: scored {found.get('value')} at step {found.get('step')}, but the best model up to "
            f"{checkpoint.name} scored {value}; start anew elsewhere"
        )


def _best_step(root: Path) -> int:
    """The step that best/ says it is of; 0 where it says none."""
    try:
        step = json.loads((root / BEST / "best.json").read_text(encoding="utf-8"))["step"]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        return 0
    return step if isinstance(step, int) else 0


def publish_checkpoint(root: Path, step: int, run_id: str, limit: int | None) -> None:
    """Move a checkpoint from the staging folder to its place, then delete the oldest beyond `limit`.

    Only checkpoints of this run count and are deleted, and none of a later step: those were passed over by a resume.
    """
    name = f"checkpoint-{step}"
    publish(root / STAGING / name, root / name, run_id)
    remove(root / STAGING)
    older = [folder for folder in checkpoints(root) if _step(folder) < step and owner(folder) == run_id]
    for folder in older[limit - 1 :] if limit else []:
        folder.rename(root / ".checkpoint.removed")
        remove(root / ".checkpoint.removed")


def discard(root: Path, run_id: str | None) -> None:
    """Remove what a finished run no longer needs, its checkpoints and its copy of the best model; nothing else's."""
    for folder in (*checkpoints(root), root / BEST):
        if run_id is not None and owner(folder) == run_id:
            remove(folder)


def clean(root: Path) -> None:
    """Remove what an interrupted command left half written; called by the owner of the folder's lock."""
    recover(root / BEST)
    for path in root.glob(".checkpoint-*.replaced"):
        remove(path)
    for name in (STAGING, ".checkpoint.removed", f".{BEST}.partial", ".result.partial"):
        remove(root / name)
