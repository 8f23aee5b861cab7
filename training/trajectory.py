"""Which settings decide the weights, when two runs are the same, and when a run is only a longer one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from common.errors import BadInput

_LONGEST = 80  # characters of a value in a message: a dictionary of hashes is long

# Fields that change neither the weights nor what is selected: they may differ when a run is resumed (what files hold
# is compared by content). All others may not, `max_steps` and `num_train_epochs` included, since the schedule depends
# on them; see `is_longer`.
MAY_DIFFER = frozenset(
    """output_dir data_dir cache_dir dry_run test_tasks run_name report_to project trackio_space_id disable_tqdm
    log_level log_level_replica log_on_each_node logging_strategy logging_first_step logging_steps save_strategy
    save_steps save_total_limit save_on_each_node dataloader_num_workers dataloader_prefetch_factor
    dataloader_pin_memory dataloader_persistent_workers dataloader_in_order resume_from_checkpoint push_to_hub
    hub_model_id hub_strategy hub_token hub_private_repo hub_revision hub_always_push ddp_timeout debug
    include_num_input_tokens_seen skip_memory_metrics train_file dev_file local_rank""".split()
)
# Of those, the ones that all processes of a run must share nonetheless: they decide when processes wait for each other.
IN_STEP = frozenset(
    "output_dir dry_run logging_strategy logging_first_step logging_steps save_strategy save_steps".split()
)


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names of the settings in which two trajectories differ; local models are compared by their files, not by name."""
    files = one.get("contents")
    read = other.get("contents", {}).items() if isinstance(files, dict) else ()
    same = {name for name, found in read if files.get(name) == found}
    return [name for name in sorted((one.keys() | other.keys()) - same) if one.get(name) != other.get(name)]


def check_agreement(everyone: Sequence[dict[str, Any]]) -> None:
    """Compare what every process of a run was started with, in the order of their ranks.

    Raises:
        BadInput: settings, texts or the start differ; the message names them and the ranks.
    """
    names = sorted({name for other in everyone for name in differing(everyone[0], other)})
    if names:
        listed = "; ".join(f"{name}: {_by_rank(everyone, name)}" for name in names)
        raise BadInput(f"the processes of this run differ in {listed}; start all with the same settings and files")


def _by_rank(everyone: Sequence[dict[str, Any]], name: str) -> str:
    ranks: dict[str, list[str]] = {}
    for rank, settings in enumerate(everyone):
        ranks.setdefault(str(settings.get(name)), []).append(str(rank))
    return ", ".join(f"{value[:_LONGEST]} in rank {' and '.join(held)}" for value, held in ranks.items())


def is_longer(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether settings ask for more steps of a run whose learning rate does not depend on their number.

    The last step is always evaluated. Where that was no multiple of `eval_steps`, the longer run would not have looked
    for its best model there, and is another one.
    """
    constant = old.get("lr_scheduler_type") == new.get("lr_scheduler_type") == "constant"
    steps = old.get("max_steps")  # read from a file
    every = new.get("eval_steps", 1)
    selects = new.get("dev", "none") != "none"
    if selects and type(steps) is int and (every < 1 or steps % every):
        return False
    return constant and type(steps) is int and 0 < steps < new.get("max_steps", 0)
