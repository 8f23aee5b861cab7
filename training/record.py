"""run.json: the settings and environment of a run, and which settings determine its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import BadInput, CheckpointRefused, newer_format
from common.files import RUN_FILE, read_json, sha256, write_json

FORMAT = 1
WEIGHTS = ("model.safetensors", "aux_head.safetensors")
_MESSAGE_CHARS = 80  # per value: a dictionary of hashes is long

# Fields that affect neither the weights nor the selection of the best model: they may differ at a resume. The files
# they name are compared by content. No other field may differ, including `max_steps` and `num_train_epochs`, on which
# the schedule depends; see `is_longer` and --change_steps.
MAY_DIFFER = frozenset(
    """output_dir data_dir cache_dir dry_run test_tasks run_name report_to project trackio_space_id disable_tqdm
    log_level log_level_replica log_on_each_node logging_strategy logging_first_step logging_steps save_strategy
    save_steps save_total_limit dataloader_num_workers dataloader_prefetch_factor dataloader_multiprocessing_context
    dataloader_pin_memory dataloader_persistent_workers dataloader_in_order resume_from_checkpoint push_to_hub
    hub_model_id hub_strategy hub_token hub_private_repo hub_revision hub_always_push ddp_timeout debug
    include_num_input_tokens_seen skip_memory_metrics train_file dev_file dev_beir local_rank
    change_steps use_cpu""".split()
)
NO_EFFECT = frozenset(  # of transformers; records have them, and nothing here reads them
    """do_train do_eval do_predict per_device_eval_batch_size eval_accumulation_steps eval_do_concat_batches
    eval_use_gather_object batch_eval_metrics prediction_loss_only label_names length_column_name use_cache
    fsdp_config liger_kernel_config restore_callback_states_from_checkpoint hub_model_id hub_strategy
    hub_revision hub_always_push""".split()
)
STEPS = ("max_steps", "num_train_epochs")
# Those among them that must agree over the processes of a run, because they determine when processes synchronize.
IN_STEP = frozenset(
    "output_dir dry_run logging_strategy logging_first_step logging_steps save_strategy save_steps".split()
)


def read_run(folder: Path) -> dict[str, Any]:
    """The contents of run.json; CheckpointRefused if it is unreadable or of a newer format."""
    path = folder / RUN_FILE
    run = read_json(path, "a run record", error=CheckpointRefused)
    if type(found := run.get("format")) is int and found > FORMAT:
        raise CheckpointRefused(newer_format(str(path), found, FORMAT))
    if not isinstance(run.get("trajectory"), dict) or run.get("status") not in ("running", "finished"):
        raise CheckpointRefused(
            f"{path}: not a run record ('trajectory' and a 'status' of running or finished are required)"
        )
    return run


def run_id_of(folder: Path) -> str:
    """The id in the manifests of a run's checkpoints; CheckpointRefused for runs that predate manifests."""
    run_id = read_run(folder).get("run_id")
    if not isinstance(run_id, str):
        raise CheckpointRefused(f"{folder}: a run of an older version cannot be resumed; choose another folder")
    return run_id


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
        raise CheckpointRefused(f"{folder}: {RUN_FILE} lists no result; remove the folder to train again")
    if problem := next(filter(None, (_changed(folder / name, before) for name, before in recorded.items())), None):
        raise CheckpointRefused(
            f"{folder}: the run has finished, but {problem}; restore the file, or remove the folder to train again"
        )


def _changed(path: Path, recorded: str) -> str | None:
    if not path.is_file():
        return f"{path.name} is missing"
    return None if sha256(path) == recorded else f"{path.name} has changed since"


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names of the settings in which two trajectories differ; local models are compared by content, not by name.

    A setting present in only one of them was added after the other was written; it differs if it is on. One without
    effect, which a run may no longer set, does not.
    """
    files = one.get("contents")
    other_files = other.get("contents", {}).items() if isinstance(files, dict) else ()
    same = {name for name, hashes in other_files if files.get(name) == hashes}
    in_both = {name for name in one.keys() & other.keys() if one[name] != other[name]}
    in_one = {name for name in one.keys() ^ other.keys() if (one | other)[name]}
    return sorted((in_both | in_one) - same - NO_EFFECT)


def check_agreement(everyone: Sequence[dict[str, Any]]) -> None:
    """Compare the trajectories of all processes of a run, in the order of their ranks.

    Raises:
        BadInput: they differ; the message names settings and ranks.
    """
    names = sorted({name for other in everyone for name in differing(everyone[0], other)})
    if names:
        listed = "; ".join(f"{name}: {_by_rank(everyone, name)}" for name in names)
        raise BadInput(f"the processes of this run differ in {listed}; start all with the same settings and files")


def _by_rank(everyone: Sequence[dict[str, Any]], name: str) -> str:
    ranks: dict[str, list[str]] = {}
    for rank, settings in enumerate(everyone):
        ranks.setdefault(str(settings.get(name)), []).append(str(rank))
    return ", ".join(f"{value[:_MESSAGE_CHARS]} in rank {' and '.join(numbers)}" for value, numbers in ranks.items())


def is_longer(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether the new settings extend a run whose learning rate does not depend on the number of steps.

    The last step is always evaluated. If it was not a multiple of `eval_steps`, or before `eval_delay`, the longer run
    would not have evaluated there and might have selected another model, so it is a different run.
    """
    constant = old.get("lr_scheduler_type") == new.get("lr_scheduler_type") == "constant"
    steps, every = old.get("max_steps"), new.get("eval_steps", 1)
    if not constant or type(steps) is not int:  # `old` was read from a file
        return False
    if new.get("dev", "none") != "none" and (every < 1 or steps % every or steps < new.get("eval_delay", 0)):
        return False
    return 0 < steps < new.get("max_steps", 0)
