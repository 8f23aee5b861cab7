"""The best model: `best/` in the run's folder, weights only, written whenever the dev metric improves.

It is not a checkpoint: checkpoints are written at `save_steps`, whatever the model scored. Each of them records the
best score up to its step (`best_metric`), so a resume can tell whether `best/` is what it has to be. At the end of the
run, `best/` is exported as the result.
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
_REMEDY = "start anew elsewhere"


def keep_if_best(
    root: Path, run_id: str, state: TrainerState, name: str, value: float, save: Callable[[Path], None]
) -> None:
    """Write `best/` when a dev score is higher than all before; on equal scores the earlier model stays.

    Args:
        root: the run's folder.
        run_id: its owner.
        state: the Trainer's, before it has seen this score; only the main process writes.
        name: of the metric.
        value: of the metric.
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
    """Whether the last `patience` evaluations brought no higher dev score.

    The log history is part of every checkpoint, so that a resumed run ends where the uninterrupted one does.
    """
    scores = [line[metric] for line in history if metric in line]
    return bool(scores and patience) and len(scores) - 1 - scores.index(max(scores)) >= patience


def no_checkpoint_is_best(state: TrainerState) -> None:
    """Keep the stock Trainer from looking for the best model among the checkpoints at the end."""
    state.best_global_step = state.best_model_checkpoint = None


def read_best(root: Path, run_id: str) -> dict[str, Any]:
    """Step and value of the best model; CheckpointRefused when `best/` is not what this run wrote."""
    reason = problem(root / BEST, run_id, (_FACTS, "config.json"))
    if reason is not None:
        raise CheckpointRefused(f"{root / BEST}: the best model is gone ({reason}); {_REMEDY}")
    return read_json(root / BEST / _FACTS, "step and value of the best model", _REMEDY, error=CheckpointRefused)


def check_best(root: Path, checkpoint: Path, run_id: str) -> None:
    """Refuse to resume from a checkpoint without its best model: the run would end with a worse one.

    A best model of a later step of this run is not looked at: the resumed run reaches that step and writes it again.

    Raises:
        CheckpointRefused: `best/` is lost, damaged, of another run, or not the model that the checkpoint records.
    """
    value = state_of(checkpoint).get("best_metric")
    if value is None or (_step(root) > step_of(checkpoint) and owner(root / BEST) in (run_id, None)):
        return
    found = read_best(root, run_id)
    if found.get("value") != value:
        raise CheckpointRefused(
            f"{root / BEST}: scored {found.get('value')} at step {found.get('step')}, but the best model up to "
            f"{checkpoint.name} scored {value}; {_REMEDY}"
        )


def _step(root: Path) -> int:
    """The step that `best/` claims; 0 where it claims none."""
    try:
        return read_json(root / BEST / _FACTS, "", error=ValueError, fields={"step": int})["step"]
    except ValueError:
        return 0


def copy_best(root: Path, place: str) -> None:
    """Copy the files of the best model, without their manifest, into the folder of the result."""
    shutil.copytree(root / BEST, place, ignore=shutil.ignore_patterns(MANIFEST), dirs_exist_ok=True)
