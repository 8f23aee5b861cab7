"""The folder of a run: its record, its lock, and how a command begins there.

A run owns its folder. `run.json` is written before the first step; the same command then resumes
or, once the run is finished, changes nothing. Any other content of the folder is refused.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from common.errors import BadInput, CheckpointRefused, FolderInUse, newer_format
from common.files import RUN_FILE, read_json, remove, sha256, write_json
from training.checkpoint import BEST, check_best, checkpoint_problem, checkpoints, owner

logger = logging.getLogger(__name__)
FORMAT = 1
LOCK_FILE = ".infocse.lock"
WEIGHTS = ("model.safetensors", "aux_head.safetensors")
_MESSAGE_CHARS = 80  # per value: a dictionary of hashes is long

# Fields that affect neither the weights nor the selection of the best model: they may differ at a
# resume. The files they name are compared by content. No other field may differ, including
# `max_steps` and `num_train_epochs`, on which the schedule depends. Nothing here reads those of the
# last four lines, which are transformers'.
MAY_DIFFER = frozenset(
    """output_dir data_dir cache_dir dry_run test_tasks run_name report_to project trackio_space_id disable_tqdm
    log_level log_level_replica log_on_each_node logging_strategy logging_first_step logging_steps save_strategy
    save_steps save_total_limit dataloader_num_workers dataloader_prefetch_factor dataloader_multiprocessing_context
    dataloader_pin_memory dataloader_persistent_workers dataloader_in_order resume_from_checkpoint ddp_timeout debug
    include_num_input_tokens_seen skip_memory_metrics train_file dev_file dev_beir local_rank use_cpu probe_gradients
    push_to_hub hub_model_id hub_strategy hub_token hub_private_repo hub_revision hub_always_push
    do_train do_eval do_predict per_device_eval_batch_size eval_accumulation_steps eval_do_concat_batches
    eval_use_gather_object batch_eval_metrics prediction_loss_only label_names length_column_name use_cache
    fsdp_config liger_kernel_config restore_callback_states_from_checkpoint""".split()
)
# Those among them that must agree over the processes of a run, because they determine when
# processes synchronize.
IN_STEP = frozenset(
    "output_dir dry_run logging_strategy logging_first_step logging_steps save_strategy save_steps".split()
)


def read_run(folder: Path) -> dict[str, Any]:
    """The contents of run.json; CheckpointRefused if it is unreadable or of a newer format."""
    path = folder / RUN_FILE
    run = read_json(path, "a run record", error=CheckpointRefused)
    if type(found := run.get("format")) is int and found > FORMAT:
        raise CheckpointRefused(newer_format(str(path), found, FORMAT))
    if not isinstance(run.get("trajectory"), dict) or run.get("status") not in (
        "running",
        "finished",
    ):
        raise CheckpointRefused(
            f"{path}: not a run record ('trajectory' and a 'status' of running or finished are "
            "required)"
        )
    return run


def write_run(folder: str | Path, content: dict[str, Any]) -> None:
    """Write run.json atomically; raises OSError on disk errors."""
    write_json(Path(folder) / RUN_FILE, content, sort_keys=True, remedy=None)


def check_result(folder: Path, run: Mapping[str, Any]) -> None:
    """Check that the result of a finished run is unchanged; other files in the folder may change.

    Raises:
        CheckpointRefused: a file of the result is missing or has changed.
    """
    recorded = run.get("result")
    if not isinstance(recorded, dict):
        raise CheckpointRefused(
            f"{folder}: {RUN_FILE} lists no result; remove the folder to train again"
        )
    for name, before in recorded.items():
        if not (folder / name).is_file() or sha256(folder / name) != before:
            raise CheckpointRefused(
                f"{folder}: the run has finished, but {name} is missing or has changed; restore "
                "the file, or remove "
                "the folder to train again"
            )


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names of the settings in which two trajectories differ; local models are compared by content,
    not by name.

    A setting present in only one of them was added after the other was written; it differs if it is
    on.
    """
    files = one.get("contents")
    other_files = other.get("contents", {}).items() if isinstance(files, dict) else ()
    same = {name for name, hashes in other_files if files.get(name) == hashes}
    in_both = {name for name in one.keys() & other.keys() if one[name] != other[name]}
    in_one = {name for name in one.keys() ^ other.keys() if (one | other)[name]}
    return sorted(
        (in_both | in_one) - same - (MAY_DIFFER - IN_STEP)
    )  # older records have more of them


def check_agreement(everyone: Sequence[dict[str, Any]]) -> None:
    """Compare the trajectories of all processes of a run, in the order of their ranks.

    Raises:
        BadInput: they differ; the message names settings and ranks.
    """
    names = sorted({name for other in everyone for name in differing(everyone[0], other)})
    if names:
        values = {
            name: [str(trajectory.get(name))[:_MESSAGE_CHARS] for trajectory in everyone]
            for name in names
        }
        listed = "; ".join(f"{name}: {', '.join(by_rank)}" for name, by_rank in values.items())
        raise BadInput(
            f"the processes of this run differ, by rank: {listed}; start all with the same "
            "settings and files"
        )


class Start(NamedTuple):
    """Where a command begins: `finished`, or training from `checkpoint` (None: from step 0)."""

    finished: bool
    checkpoint: str | None


def open_run(folder: str, trajectory: dict[str, Any]) -> Start:
    """Decide how a command begins in `folder`; writes nothing.

    Args:
        folder: the output folder.
        trajectory: every setting that determines the weights, as JSON values.

    Raises:
        BadInput: the folder contains something that is not a run.
        CheckpointRefused: it contains a run with other settings (named) or only invalid
            checkpoints.
    """
    status, root = status_of(folder, trajectory), Path(folder)
    return Start(
        status == "finished",
        last_valid(root, read_run(root).get("run_id")) if status == "running" else None,
    )


def status_of(folder: str | Path, trajectory: dict[str, Any]) -> str:
    """`new`, `running` or `finished`; raises like `open_run`, but does not check the checkpoints."""
    root = Path(folder)
    if not root.exists() or all(_is_ours(path.name) for path in root.iterdir()):
        return "new"
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
            "it, or choose "
            "another --output_dir"
        )
    return run["status"]


def _is_ours(name: str) -> bool:
    """Whether a file is the lock, or the partial record of a killed command."""
    return name == LOCK_FILE or (name.startswith(f"{RUN_FILE}.") and name.endswith(".part"))


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


def last_valid(root: Path, run_id: str) -> str | None:
    """The newest `checkpoint-N` that is exactly what this run wrote; None if there are no
    checkpoints.

    Raises:
        CheckpointRefused: no checkpoint is valid (a run must not silently start over), or the best
            model up to the checkpoint is lost.
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
            f"{root}: none of the {len(reasons)} checkpoints is valid ({'; '.join(reasons)}); "
            "remove them to start over"
        )
    return None


def discard(root: Path, run_id: str | None) -> None:
    """Remove the checkpoints and the copy of the best model, which a finished run no longer needs."""
    for folder in (*checkpoints(root), root / BEST):
        if run_id is not None and owner(folder) == run_id:
            remove(folder)


@contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Lock a folder while the block runs; a folder created here is removed again if nothing was
    written.

    The lock is a record lock of the operating system: it ends with its process, however that ends,
    and worker processes do not inherit it. Its file stays, or two commands could lock two files of
    the same name.

    Raises:
        CheckpointRefused: another process holds the lock; the message gives its pid.
    """
    root = Path(folder)
    existed = root.exists()
    root.mkdir(parents=True, exist_ok=True)
    path = root / LOCK_FILE
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:  # depends on the system
        pid = os.read(descriptor, 20).decode(errors="replace")
        os.close(descriptor)
        raise FolderInUse(f"{root}: in use by another command (pid {pid})") from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    try:
        yield
    finally:
        if not existed and [*root.iterdir()] == [path]:
            path.unlink()
            root.rmdir()
        os.close(descriptor)
