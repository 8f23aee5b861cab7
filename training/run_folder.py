"""The folder of a run: its record, its checkpoints, its best model, its result, and how it resumes.

A run owns its folder. `run.json` is written before the first step; the same command then resumes
or, once the run is finished, changes nothing. Any other content of the folder is refused. Beside
the record there are

    checkpoint-N/  the state to resume from, written every `save_steps`, whatever the score
    best/          weights only, written whenever the dev score improves, and its step and score
    the result     a copy of best/, or the last model, in the folder itself

each of them complete or absent, see `common.folders`. A checkpoint records the best score so far
(`best_metric`), so a resume can tell whether `best/` is the one that belongs to it.
"""

from __future__ import annotations

import logging
import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import safe_open
from torch import nn
from transformers import TrainerState

from common.errors import BadInput, CheckpointRefused, NonFinite, newer_format
from common.files import RUN_FILE, files_in, read_json, sync, write_json
from common.folders import (
    MANIFEST,
    commit,
    facts_of,
    filling,
    locked,
    problem,
    read_manifest,
    recover,
    remove,
    seal,
)
from models.folder import is_state
from training.run_arguments import IN_STEP, determines_weights

logger = logging.getLogger(__name__)
FORMAT = 1
BEST = "best"
STAGING = ".checkpoint.partial"
_RESULT = ".result.partial"
_NAME = re.compile(r"checkpoint-[0-9]+")
_STATE = ("model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json")
_OF_START = ("commit", "changed_files", "versions", "hardware")
_MESSAGE_CHARS = 80  # per value: a dictionary of hashes is long


# the record


def read_run(folder: Path) -> dict[str, Any]:
    """The contents of run.json; CheckpointRefused if it is unreadable or of a newer format."""
    path = folder / RUN_FILE
    run = read_json(path, "a run record", error=CheckpointRefused)
    if type(found := run.get("format")) is int and found > FORMAT:
        raise CheckpointRefused(newer_format(str(path), found, FORMAT))
    known = isinstance(run.get("trajectory"), dict) and run.get("status") in ("running", "finished")
    if not known:
        raise CheckpointRefused(f"{path}: not a run record: it has no 'trajectory' or no 'status'")
    return run


def starts(record: Mapping[str, Any], names: Sequence[str] = _OF_START) -> list[dict[str, Any]]:
    """What every start of a run ran on, the last one last; starts that agree in it count once."""
    found: list[dict[str, Any]] = []
    for start in [*record.get("earlier_starts", []), record]:
        shown = {name: start.get(name) for name in names}
        found = [*(other for other in found if other != shown), shown]
    return found


def write_run(folder: str | Path, content: dict[str, Any]) -> None:
    """Write run.json, complete or not at all."""
    write_json(Path(folder) / RUN_FILE, content, sort_keys=True)


def finished(folder: Path) -> dict[str, Any] | None:
    """The record of the run in a folder, if there is one and it has finished."""
    record = read_run(folder) if (folder / RUN_FILE).is_file() else {}
    return record if record.get("status") == "finished" else None


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names of the settings in which two trajectories differ.

    Local models are compared by content, not by name. A setting present in only one of them was
    added after the other was written; it differs if it is on.
    """
    one, other = _without_states(one), _without_states(other)
    files, other_files = one["contents"], other["contents"]
    same = {name for name in files if files[name] == other_files.get(name)}
    in_both = {name for name in one.keys() & other.keys() if one[name] != other[name]}
    in_one = {name for name in one.keys() ^ other.keys() if (one | other)[name]}
    names = sorted((in_both | in_one) - same)
    return [name for name in names if determines_weights(name) or name in IN_STEP]


def _without_states(trajectory: dict[str, Any]) -> dict[str, Any]:
    """A trajectory without the hashes of checkpoints beside a model, which older records have."""
    contents = {}
    for name, files in (trajectory.get("contents") or {}).items():
        contents[name] = {file: value for file, value in files.items() if not is_state(file)}
    return {**trajectory, "contents": contents}


def check_agreement(everyone: Sequence[dict[str, Any]]) -> None:
    """Compare the trajectories of all processes of a run, in the order of their ranks.

    Raises:
        BadInput: they differ; the message names settings and ranks.
    """
    differences = []
    for name in sorted({name for other in everyone for name in differing(everyone[0], other)}):
        values = [str(trajectory.get(name))[:_MESSAGE_CHARS] for trajectory in everyone]
        differences.append(f"{name}: {', '.join(values)}")
    if differences:
        raise BadInput(
            f"the processes of this run differ, by rank: {'; '.join(differences)}; start all with "
            "the same settings and files"
        )


# how a command begins


class Start(NamedTuple):
    """Where a command begins: `finished`, or training from `checkpoint` (None: from step 0)."""

    finished: bool
    checkpoint: str | None


def begin(root: Path, record: dict[str, Any], stack: ExitStack) -> Start:
    """Decide how a command begins in its output folder, which `stack` then keeps locked.

    The run's id and what its earlier starts ran on go into `record`.

    Raises:
        BadInput, CheckpointRefused: see `open_run`.
        FolderInUse: another command is working in the folder.
    """
    if _status(root, record["trajectory"]) != "finished":
        stack.enter_context(locked(root / RUN_FILE))
        clean(root)
    # The status again, locked: another command may have been running.
    start = open_run(root, record["trajectory"])
    if not start.finished and (root / RUN_FILE).is_file():
        old = read_run(root)
        record["run_id"] = old.get("run_id") or record["run_id"]
        if start.checkpoint:  # otherwise step 0 replaces all of the earlier attempt, best/ too
            record["earlier_starts"] = _earlier_starts(old, record)
        else:
            logger.warning("%s: no checkpoint was saved: from step 0 again", root)
    return start


def _earlier_starts(old: dict[str, Any], new: dict[str, Any]) -> list[dict[str, Any]]:
    """The differing environments of earlier starts of a run; warns about other package versions."""
    names = ("command", *_OF_START)
    *listed, before = starts(old, names)
    if [before] == starts(new, names):
        return listed
    then = before["versions"] or {}
    changed = []
    for name, now in new["versions"].items():
        if then.get(name) != now:
            changed.append(f"{name} {then.get(name)}")
    if changed:
        said = "the run began with %s: its numbers may depend on both versions"
        logger.warning(said, ", ".join(changed))
    return [*listed, before]


def open_run(folder: str | Path, trajectory: dict[str, Any]) -> Start:
    """How a command would begin in its output folder; writes nothing.

    `trajectory` is every setting that determines the weights, as JSON values.

    Raises:
        BadInput: the folder contains something that is not a run.
        CheckpointRefused: it contains a run with other settings (named), only invalid checkpoints,
            or a finished one whose result has changed; other files beside the result may change.
    """
    root = Path(folder)
    status = _status(root, trajectory)
    if status == "running":
        return Start(False, last_valid(root, read_run(root).get("run_id")))
    if status == "finished":
        remedy = "the run has finished; restore the file, or remove the folder to train again"
        facts_of(root, remedy, error=CheckpointRefused)
    return Start(status == "finished", None)


def _status(root: Path, trajectory: dict[str, Any]) -> str:
    """`new`, `running` or `finished`; raises like `open_run`, but reads no other file."""
    if not root.exists() or all(path.name.startswith(".") for path in root.iterdir()):
        return "new"  # hidden files are the lock's, or what a killed command left
    if not (root / RUN_FILE).is_file():
        raise BadInput(
            f"{root}: not empty and not a run of this project; choose another --output_dir"
        )
    run = read_run(root)
    if run["status"] == "running" and not checkpoints(root) and not (root / BEST).exists():
        return "new"  # it saved nothing, so other settings lose nothing
    old = run["trajectory"]
    if changed := differing(old, trajectory):
        listed = "; ".join(
            _difference(name, old.get(name), trajectory.get(name)) for name in changed
        )
        raise CheckpointRefused(
            f"{root}: contains a run with other settings ({listed}); give its settings to resume "
            "it, or choose another --output_dir"
        )
    return run["status"]


def _difference(name: str, old: Any, new: Any) -> str:
    """A setting's values, or whose files have changed: their hashes would fill the screen."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return f"{name}: {old} there, {new} now"
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    if name != "contents":
        return f"{name}: {', '.join(changed)} changed"
    return "; ".join(
        _difference(f"files of --{flag}", old.get(flag) or {}, new.get(flag) or {})
        for flag in changed
    )


def last_valid(root: Path, run_id: str | None) -> str | None:
    """The newest `checkpoint-N` that is exactly what this run wrote; None if there are none.

    Raises:
        CheckpointRefused: no checkpoint is valid (a run must not silently start over), or the best
            model up to the checkpoint is lost.
    """
    reasons: list[str] = []
    for folder in checkpoints(root):
        reason = checkpoint_problem(folder, run_id)
        if reason is None:
            for line in reasons:
                logger.warning("%s; skipped", line)
            check_best(root, folder, run_id)
            return str(folder)
        reasons.append(f"{folder.name}: {reason}")
    if reasons:
        raise CheckpointRefused(
            f"{root}: none of the {len(reasons)} checkpoints is valid ({'; '.join(reasons)}); "
            "remove them to start over"
        )
    return None


def clean(root: Path) -> None:
    """Repair the folder after an interrupted command; the caller holds its lock."""
    recover(root / BEST)
    for folder in (*root.glob(".checkpoint*"), root / _RESULT):
        remove(folder)
    for file in root.glob(".*.part"):
        file.unlink()


# checkpoints


def checkpoints(root: Path) -> list[Path]:
    """Every folder named `checkpoint-N`, newest first."""
    folders = [path for path in root.iterdir() if path.is_dir() and _NAME.fullmatch(path.name)]
    return sorted(folders, key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    """N of `checkpoint-N`."""
    return int(checkpoint.name.partition("-")[2])


def facts_in(folder: Path) -> dict[str, Any]:
    """What the manifest of a checkpoint or of `best/` says, `run` first; nothing if unreadable."""
    try:
        return read_manifest(folder)["facts"]
    except ValueError:
        return {}


def checkpoint_problem(folder: Path, run_id: str | None) -> str | None:
    """Why a run must not resume from a checkpoint; None if it may."""
    if reason := problem(folder):
        return reason
    manifest = read_manifest(folder)
    if manifest["facts"].get("run") != run_id:
        return "it belongs to another run"
    for name in _STATE:
        if name not in manifest["files"]:
            return f"{name} is missing"
    return None if any(folder.glob("rng_state*.pth")) else "rng_state.pth is missing"


def state_of(checkpoint: str | Path) -> dict[str, Any]:
    """The Trainer's state in a valid checkpoint: `global_step`, `max_steps`, `best_metric`, ...

    Raises:
        CheckpointRefused: the state cannot be read or lacks its step counts.
    """
    path, fields = Path(checkpoint) / "trainer_state.json", {"global_step": int, "max_steps": int}
    return read_json(
        path, "a Trainer state", "remove that checkpoint", error=CheckpointRefused, fields=fields
    )


def commit_checkpoint(root: Path, step: int, run_id: str, limit: int | None) -> None:
    """Commit the staged checkpoint, then delete the oldest beyond `limit`.

    Only this run's checkpoints count and are deleted, and no later ones: a resume has skipped
    those.
    """
    name = f"checkpoint-{step}"
    commit(root / STAGING / name, root / name, {"run": run_id})
    remove(root / STAGING)
    older = [folder for folder in checkpoints(root) if step_of(folder) < step]
    older = [folder for folder in older if facts_in(folder).get("run") == run_id]
    for folder in older[limit - 1 :] if limit else []:
        hidden = root / f".{folder.name}.removed"  # half of it must not have its name
        folder.rename(hidden)
        remove(hidden)


def misfit(checkpoint: str | Path, model: nn.Module) -> str | None:
    """A tensor that a checkpoint lacks, or has and the model does not; None if it fits.

    Of tensors that share memory, one is enough.
    """
    with safe_open(Path(checkpoint) / "model.safetensors", "pt") as file:
        saved = set(file.keys())
    state = model.state_dict()
    covered = {state[name].data_ptr() for name in saved & state.keys()}
    missing = {name for name, value in state.items() if value.data_ptr() not in covered}
    return min(missing | (saved - state.keys()), default=None)


# the best model and the result


def keep_if_best(
    root: Path,
    run_id: str,
    state: TrainerState,
    name: str,
    value: float,
    save: Callable[[Path], None],
) -> None:
    """Write `best/` if a dev score is a new maximum; ties keep the earlier model.

    `state` is the Trainer's before this score, and `save` writes the model into an empty folder;
    only the main process writes.

    Raises:
        NonFinite: the score is NaN or infinite.
    """
    if not math.isfinite(value):
        raise NonFinite(f"{name} is {value} at step {state.global_step}: lower --learning_rate")
    if not state.is_world_process_zero:
        return
    most, found = state.best_metric, facts_in(root / BEST)
    if most is not None and found.get("run") == run_id and found["step"] <= state.global_step:
        # Of a step that a resume has repeated, with a lower score.
        if found["value"] > most and problem(root / BEST) is None:
            most = found["value"]
    if most is None or value > most:
        facts = {"run": run_id, "step": state.global_step, "value": value}
        with filling(root / BEST, facts, replace=True) as folder:
            save(folder)


def read_best(root: Path, run_id: str | None) -> dict[str, Any]:
    """Step and value of the best model; CheckpointRefused if `best/` is not what this run wrote."""
    remedy = "the best model is lost: start a new run in another --output_dir"
    facts = facts_of(root / BEST, remedy, error=CheckpointRefused)
    if facts.get("run") != run_id:
        raise CheckpointRefused(f"{root / BEST}: it belongs to another run; {remedy}")
    return {"step": facts["step"], "value": facts["value"]}


def check_best(root: Path, checkpoint: Path, run_id: str | None) -> None:
    """Refuse to resume from a checkpoint without its best model: the result would be a worse one.

    A best model from a later step of this run is not checked: the resumed run reaches that step and
    rewrites it. A machine that does not repeat bit for bit may score less there; then the model
    stays, and is better than the one that later checkpoints record.

    Raises:
        CheckpointRefused: `best/` is lost, damaged, from another run, or worse than the model that
            the checkpoint records.
    """
    value, found = state_of(checkpoint).get("best_metric"), facts_in(root / BEST)
    if value is None or (found.get("run") == run_id and found["step"] > step_of(checkpoint)):
        return
    best = read_best(root, run_id)
    if best["value"] < value:
        raise CheckpointRefused(
            f"{root / BEST}: scored {best['value']} at step {best['step']}, but the best model up "
            f"to {checkpoint.name} scored {value}; start a new run in another --output_dir"
        )


def copy_best(root: Path, target: Path) -> None:
    """Copy the best model, without its manifest, into the result's folder."""
    left_out = shutil.ignore_patterns(MANIFEST, ".*")
    shutil.copytree(root / BEST, target, ignore=left_out, dirs_exist_ok=True)


@contextmanager
def installing_result(root: Path, run_id: str) -> Iterator[Path]:
    """An empty folder to fill; if the block succeeds, its files replace those of `root`.

    Each does so atomically, the manifest last.
    """
    folder = root / _RESULT
    remove(folder)
    folder.mkdir()
    try:
        yield folder
        seal(folder, {"run": run_id})
        for name, path in sorted(files_in(folder).items(), key=lambda item: item[0] == MANIFEST):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            path.replace(root / name)
        sync(root)
    finally:
        remove(folder)


def discard(root: Path, run_id: str | None) -> None:
    """Remove the checkpoints and the best model, which a finished run no longer needs."""
    for folder in (*checkpoints(root), root / BEST):
        if run_id is not None and facts_in(folder).get("run") == run_id:
            remove(folder)
