"""The run folder: its lock, whether a command may continue there, and from which checkpoint.

A run owns its folder. `run.json` is written before the first step; the same command then resumes or, once the run is
finished, changes nothing. Any other content of the folder is refused.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from common.errors import BadInput, CheckpointRefused
from common.files import remove
from training.best import BEST, check_best
from training.checkpoint import checkpoint_problem, checkpoints, owner, recover, remove_leftovers
from training.record import RUN_FILE, STEPS, differing, is_longer, read_run, run_id_of

logger = logging.getLogger(__name__)
LOCK_FILE = ".infocse.lock"


class Start(NamedTuple):
    """Where a command begins: `finished`, or training from `checkpoint` (None: from step 0)."""

    finished: bool
    checkpoint: str | None


def open_run(folder: str, trajectory: dict[str, Any], change_steps: bool = False) -> Start:
    """Decide how a command begins in `folder`; writes nothing.

    Args:
        folder: the output folder.
        trajectory: every setting that determines the weights, as JSON values.
        change_steps: whether the run may have started with a different number of steps.

    Raises:
        BadInput: the folder is a file or contains something that is not a run.
        CheckpointRefused: it contains a run with other settings (named), only invalid checkpoints, or, to change its
            steps, a finished run without checkpoints.
    """
    status, root = status_of(folder, trajectory, change_steps), Path(folder)
    if status != "running":
        return Start(status == "finished", None)
    checkpoint = last_valid(root, run_id_of(root))
    if checkpoint is None and read_run(root)["status"] == "finished":
        raise CheckpointRefused(
            f"{root}: the finished run has no checkpoint to continue from; choose another --output_dir"
        )
    return Start(False, checkpoint)


def status_of(folder: str | Path, trajectory: dict[str, Any], change_steps: bool) -> str:
    """`new`, `running` or `finished`; raises like `open_run`, but does not check the checkpoints."""
    root = Path(folder)
    if root.exists() and not root.is_dir():
        raise BadInput(f"{root}: is a file; --output_dir must be a folder")
    if not root.exists() or all(_is_ours(path.name) for path in root.iterdir()):
        return "new"
    if not (root / RUN_FILE).is_file():
        raise BadInput(f"{root}: not empty and not a run of this project; choose another --output_dir")
    run = read_run(root)
    if run["status"] == "running" and not checkpoints(root) and not (root / BEST).exists():
        return "new"  # it saved nothing, so other settings lose nothing
    old = run["trajectory"]
    free = STEPS if change_steps else STEPS[:1] if is_longer(old, trajectory) else ()
    as_before = {name: old[name] for name in free if name in old}
    _compare(root, old, trajectory | as_before)
    changed = any(trajectory.get(name) != value for name, value in as_before.items())
    return "finished" if run["status"] == "finished" and not changed else "running"


def _is_ours(name: str) -> bool:
    """Whether a file is the lock, or the partial record of a killed command."""
    return name == LOCK_FILE or (name.startswith(f"{RUN_FILE}.") and name.endswith(".part"))


def _compare(root: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    changed = differing(old, new)
    if changed:
        listed = "; ".join(_difference(name, old.get(name), new.get(name)) for name in changed)
        change = "--change_steps true to change the number of steps, " * ({*changed} <= {*STEPS})
        raise CheckpointRefused(
            f"{root}: contains a run with other settings ({listed}); use its settings to resume, {change}or another "
            "--output_dir"
        )


def _difference(name: str, old: Any, new: Any) -> str:
    """A setting's values, or whose files have changed: their hashes would fill the screen."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return f"{name}: {old} there, {new} now"
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    if name != "contents":
        return f"{name}: {', '.join(changed)} changed"
    return "; ".join(_difference(f"files of --{flag}", old.get(flag) or {}, new.get(flag) or {}) for flag in changed)


def last_valid(root: Path, run_id: str) -> str | None:
    """The newest `checkpoint-N` that is exactly what this run wrote; None if there are no checkpoints.

    Raises:
        CheckpointRefused: no checkpoint is valid (a run must not silently start over), or the best model up to the
            checkpoint is lost.
    """
    reasons = []
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
            f"{root}: none of the {len(reasons)} checkpoints is valid ({'; '.join(reasons)}); remove them to start over"
        )
    return None


def clean(root: Path) -> None:
    """Repair the folder after an interrupted command; the caller must hold its lock."""
    recover(root / BEST)
    remove_leftovers(root)


def discard(root: Path, run_id: str | None) -> None:
    """Remove the checkpoints and the copy of the best model, which a finished run no longer needs."""
    for folder in (*checkpoints(root), root / BEST):
        if run_id is not None and owner(folder) == run_id:
            remove(folder)


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Lock a folder while the block runs; a folder created here is removed again if it stays empty.

    The lock is a record lock of the operating system: it ends with its process, however that ends, and worker
    processes do not inherit it.

    Raises:
        CheckpointRefused: another process holds the lock; the message gives its pid, host and start time.
    """
    root = Path(folder)
    existed = root.exists()
    root.mkdir(parents=True, exist_ok=True)
    path = root / LOCK_FILE
    descriptor = _acquire(path)
    try:
        yield
    finally:
        with suppress(OSError):  # do not hide an error of the block
            path.unlink()
        os.close(descriptor)
        if not existed:
            with suppress(OSError):
                root.rmdir()


def _acquire(path: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:  # depends on the system
            holder = os.read(descriptor, 4096).decode(errors="replace")
            os.close(descriptor)
            raise CheckpointRefused(f"{path.parent}: in use by another command ({_describe(holder)})") from error
        if _is_open_as(path, descriptor):
            break
        os.close(descriptor)  # its last owner removed the file between our open and our lock
    before = os.read(descriptor, 4096).decode(errors="replace")
    if before:
        logger.warning("%s: taking over the lock of a command that has ended (%s)", path.parent, _describe(before))
    os.ftruncate(descriptor, 0)
    mine = {"pid": os.getpid(), "host": socket.gethostname(), "started": time.strftime("%Y-%m-%d %H:%M:%S")}
    os.pwrite(descriptor, json.dumps(mine).encode(), 0)
    return descriptor


def _is_open_as(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _describe(holder: str) -> str:
    try:
        process = json.loads(holder)
        return f"pid {process['pid']} on {process['host']}, started {process['started']}"
    except (ValueError, RecursionError, KeyError, TypeError):
        return "process unknown"
