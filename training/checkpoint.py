"""Checkpoints and the best model of a run: folders that are complete or absent.

A folder is written under a temporary name. `manifest.json` lists every file with its sha256,
everything is flushed to disk, and one rename moves the folder into place. The process may be killed
or the disk may fill up at any moment: a folder under its final name is complete, and a reader can
verify it.

`checkpoint-N` is the state to resume from, written every `save_steps`, whatever the score. `best/`
has weights only and is written whenever the dev score improves. Each checkpoint records the best
score so far (`best_metric`), so a resume can verify `best/`. At the end of the run, `best/` is
exported as the result.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import nn
from transformers import TrainerState

from common.errors import CheckpointRefused, NonFinite, newer_format
from common.files import files_in, hashes, is_hidden, read_json, remove, sha256, sync, sync_folder

MANIFEST = "manifest.json"
BEST = "best"
FORMAT = 1
STAGING = ".checkpoint.partial"
_REMOVED = ".checkpoint.removed"
_RESULT = ".result.partial"
_NAME = re.compile(r"checkpoint-[0-9]+")
_FACTS = "best.json"
_REMEDY = "start a new run in another --output_dir"
_STATE = ("model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json")


@contextmanager
def committing(target: Path, run_id: str) -> Iterator[Path]:
    """An empty folder to fill; it replaces `target` if the block succeeds, see `commit`."""
    with _temporary(_partial(target)) as folder:
        yield folder
        commit(folder, target, run_id)


@contextmanager
def replacing_files(root: Path) -> Iterator[Path]:
    """An empty folder to fill; if the block succeeds, its files replace those of `root`, each atomically."""
    with _temporary(root / _RESULT) as folder:
        yield folder
        for name, path in files_in(folder).items():
            sync(path)
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            path.replace(root / name)
        sync(root)


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """A new folder, removed at the end: half a folder would fill a full disk."""
    remove(folder)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        remove(folder)


def commit(partial: Path, target: Path, run_id: str) -> None:
    """Write the manifest, flush everything, and rename a folder to its final name.

    Args:
        partial: the written folder, on the same file system.
        target: its final path; what is there is replaced, and a link is not followed.
        run_id: the run that owns the folder.
    """
    content = {"format": FORMAT, "run": run_id, "files": hashes(partial)}
    (partial / MANIFEST).write_bytes(_render(content))
    sync_folder(partial)
    if target.is_symlink() or target.is_file():
        target.unlink()
    elif target.exists():
        target.rename(_replaced(target))
    partial.rename(target)
    sync(target.parent)
    remove(_replaced(target))


def recover(target: Path) -> None:
    """Undo a replacement interrupted between its two renames, and remove a half-written folder."""
    if _replaced(target).exists() and not target.exists():
        _replaced(target).rename(target)
    remove(_replaced(target))
    remove(_partial(target))


def _partial(target: Path) -> Path:
    return target.with_name(f".{target.name}.partial")


def _replaced(target: Path) -> Path:
    return target.with_name(f".{target.name}.replaced")


def _render(content: Any) -> bytes:
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def _read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest's content; ValueError if it is missing or damaged."""
    path, fields = folder / MANIFEST, {"format": int, "run": str, "files": dict}
    try:
        content = read_json(path, "a manifest", error=ValueError, fields=fields)
        intact = path.read_bytes() == _render(content)  # a flipped bit may leave valid JSON
    except (ValueError, OSError) as error:
        raise ValueError(f"{MANIFEST} is missing or damaged") from error
    if not intact:
        raise ValueError(f"{MANIFEST} is damaged")
    if content["format"] != FORMAT:
        raise ValueError(newer_format(MANIFEST, content["format"], FORMAT))
    return content


def owner(folder: Path) -> str | None:
    """The id of the run in a folder's manifest; None if unreadable."""
    try:
        return _read_manifest(folder)["run"]
    except ValueError:
        return None


def problem(folder: Path, run_id: str, needed: tuple[str, ...] = ()) -> str | None:
    """Why a folder must not be used; None if its files, hidden ones aside, match its manifest.

    Args:
        folder: a committed folder.
        run_id: the run that must own it.
        needed: files that must be present.
    """
    try:
        content = _read_manifest(folder)
    except ValueError as error:
        return str(error)
    if content["run"] != run_id:
        return "it belongs to another run"
    listed = content["files"]
    paths = {
        path.relative_to(folder): path
        for path in folder.rglob("*")
        if not path.is_dir() or path.is_symlink()
    }
    present = {str(name): path for name, path in paths.items() if not is_hidden(name)}
    present.pop(MANIFEST, None)
    names = sorted(listed.keys() | present.keys() | set(needed))
    return next(
        filter(None, (_file_problem(name, present.get(name), listed.get(name)) for name in names)),
        None,
    )


def _file_problem(name: str, path: Path | None, expected: str | None) -> str | None:
    if path is None:
        return f"{name} is missing"
    if expected is None:
        return f"{name} is not in its manifest"
    if path.is_symlink() or not path.is_file():
        return f"{name} is not a regular file"
    return None if sha256(path) == expected else f"{name} has changed since it was written"


def checkpoints(root: Path) -> list[Path]:
    """Every folder named `checkpoint-N`, newest first."""
    folders = [path for path in root.iterdir() if path.is_dir() and _NAME.fullmatch(path.name)]
    return sorted(folders, key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    """N of `checkpoint-N`."""
    return int(checkpoint.name.partition("-")[2])


def checkpoint_problem(folder: Path, run_id: str) -> str | None:
    """Why a run must not resume from a checkpoint; None if it may, see `problem`."""
    reason = problem(folder, run_id, _STATE)
    if reason is None and not any(folder.glob("rng_state*.pth")):
        return "rng_state.pth is missing"
    return reason


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
    commit(root / STAGING / name, root / name, run_id)
    remove(root / STAGING)
    older = [
        folder for folder in checkpoints(root) if step_of(folder) < step and owner(folder) == run_id
    ]
    for folder in older[limit - 1 :] if limit else []:
        folder.rename(root / _REMOVED)
        remove(root / _REMOVED)


def clean(root: Path) -> None:
    """Repair the folder after an interrupted command; the caller must hold its lock."""
    recover(root / BEST)
    for path in root.glob(".checkpoint-*.replaced"):
        remove(path)
    for name in (STAGING, _REMOVED, _RESULT):
        remove(root / name)


def keep_if_best(
    root: Path,
    run_id: str,
    state: TrainerState,
    name: str,
    value: float,
    save: Callable[[Path], None],
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
            (folder / _FACTS).write_text(
                json.dumps({"step": state.global_step, "value": value}), encoding="utf-8"
            )


def read_best(root: Path, run_id: str) -> dict[str, Any]:
    """Step and value of the best model; CheckpointRefused if `best/` is not what this run wrote."""
    reason = problem(root / BEST, run_id, (_FACTS, "config.json"))
    if reason is not None:
        raise CheckpointRefused(f"{root / BEST}: the best model is lost ({reason}); {_REMEDY}")
    return read_json(
        root / BEST / _FACTS, "step and value of the best model", _REMEDY, error=CheckpointRefused
    )


def check_best(root: Path, checkpoint: Path, run_id: str) -> None:
    """Refuse to resume from a checkpoint without its best model: the run would end with a worse
    one.

    A best model from a later step of this run is not checked: the resumed run reaches that step and
    rewrites it.

    Raises:
        CheckpointRefused: `best/` is lost, damaged, from another run, or not the model that the
            checkpoint records.
    """
    value = state_of(checkpoint).get("best_metric")
    if value is None or (
        best_step(root) > step_of(checkpoint) and owner(root / BEST) in (run_id, None)
    ):
        return
    best = read_best(root, run_id)
    if best.get("value") != value:
        raise CheckpointRefused(
            f"{root / BEST}: scored {best.get('value')} at step {best.get('step')}, but the best "
            "model up to "
            f"{checkpoint.name} scored {value}; {_REMEDY}"
        )


def best_step(root: Path) -> int:
    """The step recorded in `best/`; 0 if unreadable."""
    try:
        return read_json(root / BEST / _FACTS, "", error=ValueError, fields={"step": int})["step"]
    except ValueError:
        return 0


def copy_best(root: Path, target: Path) -> None:
    """Copy the best model, without its manifest, into the result's folder."""
    shutil.copytree(
        root / BEST, target, ignore=shutil.ignore_patterns(MANIFEST, ".*"), dirs_exist_ok=True
    )


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
