"""Resuming inside the Trainer: damaged states are refused.

A manifest proves that files are unchanged, not who wrote them. Pickles are read with `weights_only`, so they cannot run
code. Any error while loading is reported as a fault of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import Trainer, TrainerState, TrainingArguments
from transformers.trainer_pt_utils import safe_globals

from common.errors import BadInput, CheckpointRefused, ProjectError, brief
from training.faults import is_memory_error


@contextmanager
def _loading(checkpoint: str | None) -> Iterator[None]:
    try:
        yield
    except (ProjectError, OSError):
        raise
    except Exception as error:  # unpickler, zip reader, optimizer and JSON raise many types
        if is_memory_error(error):
            raise
        # Only the first sentence: torch goes on to explain how to run the code of a pickle.
        reason = f"{type(error).__name__}: {brief(error).partition('. ')[0]}"
        raise CheckpointRefused(
            f"{checkpoint}: its state cannot be loaded ({reason}); remove that folder to resume from the previous "
            "checkpoint, or to start over if there is none"
        ) from error


def _state_in(checkpoint: str) -> TrainerState:
    return TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))


class ResumingTrainer(Trainer):
    """Stock Trainer that raises CheckpointRefused for an unreadable or mismatched checkpoint.

    Attributes:
        forgets_best: whether a resume ignores the best score so far, so that the next evaluation replaces `best/`.
    """

    forgets_best = False

    def _init_training_state(self, max_steps, updates, epochs, checkpoint, trial):
        with _loading(checkpoint):
            begun = super()._init_training_state(max_steps, updates, epochs, checkpoint, trial)
        if self.forgets_best:
            self.state.best_metric = None
        return begun

    def create_optimizer(self, model=None):
        try:
            return super().create_optimizer(model)
        except (ImportError, ValueError, NotImplementedError) as error:
            raise BadInput(f"--optim {self.args.optim.value}: {brief(error)}") from error

    def _load_from_checkpoint(self, checkpoint, model=None):
        with _loading(checkpoint):
            super()._load_from_checkpoint(checkpoint, model)
            _state_in(checkpoint)  # the Trainer reads it next, outside of `_loading`

    def _load_optimizer_and_scheduler(self, checkpoint):
        with _loading(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)
            if checkpoint is not None and isinstance(self.lr_scheduler, LambdaLR):
                self._follow_schedule(self.lr_scheduler)

    def _follow_schedule(self, schedule: LambdaLR) -> None:
        """Set the next step's learning rate: the checkpoint's rate belongs to its own number of steps."""
        rates = zip(schedule.base_lrs, schedule.lr_lambdas, strict=True)
        schedule._last_lr = [base * rate(schedule.last_epoch) for base, rate in rates]
        for group, rate in zip(self.optimizer.param_groups, schedule._last_lr, strict=True):
            group["lr"] = rate

    def _load_scaler(self, checkpoint):
        with _loading(checkpoint):
            super()._load_scaler(checkpoint)

    def _load_rng_state(self, checkpoint):
        with _loading(checkpoint):
            super()._load_rng_state(checkpoint)
            if checkpoint is not None and self.args.device.type == "cuda":
                check_device_state(Path(checkpoint), self.args)

    def restore(self, checkpoint: str) -> None:
        """Load weights and state of a checkpoint with no steps left to train."""
        self._load_from_checkpoint(checkpoint)
        self.state = _state_in(checkpoint)

    def _issue_warnings_after_load(self, load_result) -> None:
        """Refuse missing and unexpected tensors; of tensors that share memory, one is enough."""
        state, not_loaded = self.model.state_dict(), set(load_result.missing_keys)
        loaded = {value.data_ptr() for name, value in state.items() if name not in not_loaded}
        missing = {name for name in not_loaded if state[name].data_ptr() not in loaded}
        if missing or load_result.unexpected_keys:
            names = sorted(missing) + sorted(load_result.unexpected_keys)
            raise CheckpointRefused(f"the checkpoint does not fit the model: {names[0]} ({len(names)} tensors in all)")
        self.model.tie_weights()


def check_device_state(checkpoint: Path, args: TrainingArguments) -> None:
    """Refuse a checkpoint whose GPU random state was not restored: transformers only logs that."""
    name = "rng_state.pth" if args.world_size == 1 else f"rng_state_{args.process_index}.pth"
    with safe_globals():
        saved = torch.load(checkpoint / name, map_location="cpu", weights_only=True).get("cuda")
    states = [saved] if isinstance(saved, torch.Tensor) else saved or []  # of one GPU, or of all visible GPUs
    now = torch.cuda.get_rng_state(args.device)
    if not any(torch.equal(state, now) for state in states):
        raise CheckpointRefused(
            f"{checkpoint}: the GPU's random state cannot be restored, so dropout would differ; resume on the same "
            "number and type of GPUs, or start a new run in another --output_dir"
        )
