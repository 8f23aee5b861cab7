"""The best model: `best/` in the run's folder, weights only, written whenever the dev metric improves.

It is not a checkpoint: those are written every `save_steps`, whatever the score. Each checkpoint records the best score
so far (`best_metric`), so a resume can verify `best/`. At the end of the run, `best/` is exported as the result.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerState

from common.errors import CheckpointRefused, NonFinite
from common.files import read_json
from training.checkpoint import MANIFEST, committing, owner, problem, state_of, step_of

BEST = "best"
_FACTS = "best.json"
_REMEDY = "start a new run in another --output_dir"


def keep_if_best(
    root: Path, run_id: str, state: TrainerState, name: str, value: float, save: Callable[[Path], None]
) -> None:
    """Write `best/` if a dev score is a new maximum; ties keep the earlier model.

    Args:
        root: the run's folder.
        run_id: its owner.
        state: the Trainer's state before this score; only the main process writes.
        name: the metric.
        value: its value.
        save: writes the model into an empty folder.

    Raises:
        NonFinite: the score is NaN or infinite.
    """
    if not math.isfinite(value):
        raise NonFinite(f"{name} is {value} at step {state.global_step}: lower --learning_rate")
    if state.is_world_process_zero and (state.best_metric is None or value > state.best_metric):
        with committing(root / BEST, run_id) as folder:
            save(folder)
            (folder / _FACTS).write_text(json.dumps({"step": state.global_step, "value": value}), encoding="utf-8")


def out_of_patience(history: Sequence[Mapping[str, Any]], metric: str, patience: int | None) -> bool:
    """Whether the last `patience` evaluations did not improve the dev score.

    Every checkpoint contains the log history, so a resumed run ends where the uninterrupted one does.
    """
    scores = [line[metric] for line in history if metric in line]
    return bool(scores and patience) and len(scores) - 1 - scores.index(max(scores)) >= patience


def read_best(root: Path, run_id: str) -> dict[str, Any]:
    """Step and value of the best model; CheckpointRefused if `best/` is not what this run wrote."""
    reason = problem(root / BEST, run_id, (_FACTS, "config.json"))
    if reason is not None:
        raise CheckpointRefused(f"{root / BEST}: the best model is lost ({reason}); {_REMEDY}")
    return read_json(root / BEST / _FACTS, "step and value of the best model", _REMEDY, error=CheckpointRefused)


def check_best(root: Path, checkpoint: Path, run_id: str) -> None:
    """Refuse to resume from a checkpoint without its best model: the run would end with a worse one.

    A best model from a later step of this run is not checked: the resumed run reaches that step and rewrites it, or
    replaces it at its next evaluation if its number of steps was changed.

    Raises:
        CheckpointRefused: `best/` is lost, damaged, from another run, or not the model that the checkpoint records.
    """
    value = state_of(checkpoint).get("best_metric")
    if value is None or (best_step(root) > step_of(checkpoint) and owner(root / BEST) in (run_id, None)):
        return
    best = read_best(root, run_id)
    if best.get("value") != value:
        raise CheckpointRefused(
            f"{root / BEST}: scored {best.get('value')} at step {best.get('step')}, but the best model up to "
            f"{checkpoint.name} scored {value}; {_REMEDY}"
        )


def best_step(root: Path) -> int:
    """The step recorded in `best/`; 0 if unreadable."""
    try:
        return read_json(root / BEST / _FACTS, "", error=ValueError, fields={"step": int})["step"]
    except ValueError:
        return 0


def copy_best(root: Path, place: str) -> None:
    """Copy the best model, without its manifest, into the result's folder."""
    shutil.copytree(root / BEST, place, ignore=shutil.ignore_patterns(MANIFEST, ".*"), dirs_exist_ok=True)
