"""The Trainer's side of a resume: a checkpoint is loaded whole, or refused in one line.

A manifest proves that files are as they were written, not who wrote them. Pickles are read with `weights_only`, so no
code in them is run. Whatever the libraries raise then is the checkpoint's fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers import Trainer, TrainerState

from common.errors import CheckpointRefused, ProjectError
from training.storage import is_memory_error


@contextmanager
def _loading(checkpoint: str | None) -> Iterator[None]:
    try:
        yield
    except (ProjectError, OSError):
        raise
    except Exception as error:  # unpickler, zip reader, optimizer and JSON raise a dozen classes
        if is_memory_error(error):
            raise
        # The first sentence alone: torch goes on with how to run the code of a pickle.
        reason = f"{type(error).__name__}: {' '.join(str(error).split()).partition('. ')[0][:200]}"
        raise CheckpointRefused(
            f"{checkpoint}: its state cannot be loaded ({reason}); remove that folder to go on from the checkpoint "
            "before it, or to start anew where there is none"
        ) from error


def _state_in(checkpoint: str) -> TrainerState:
    return TrainerState.load_from_json(str(Path(checkpoint) / "trainer_state.json"))


class ResumingTrainer(Trainer):
    """Stock Trainer that raises CheckpointRefused for a checkpoint it cannot read, or that does not fit."""

    def _init_training_state(self, max_steps, updates, epochs, checkpoint, trial):
        with _loading(checkpoint):
            return super()._init_training_state(max_steps, updates, epochs, checkpoint, trial)

    def _load_from_checkpoint(self, checkpoint, model=None):
        with _loading(checkpoint):
            super()._load_from_checkpoint(checkpoint, model)
            _state_in(checkpoint)  # which the Trainer reads next

    def _load_optimizer_and_scheduler(self, checkpoint):
        with _loading(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_scaler(self, checkpoint):
        with _loading(checkpoint):
            super()._load_scaler(checkpoint)

    def _load_rng_state(self, checkpoint):
        with _loading(checkpoint):
            super()._load_rng_state(checkpoint)

    def restore(self, checkpoint: str) -> None:
        """Weights and state of a checkpoint after which nothing is left to train."""
        self._load_from_checkpoint(checkpoint)
        self.state = _state_in(checkpoint)

    def _issue_warnings_after_load(self, load_result) -> None:
        """A resumed model must be whole; tensors that share their memory are stored once."""
        state, absent = self.model.state_dict(), set(load_result.missing_keys)
        loaded = {value.data_ptr() for name, value in state.items() if name not in absent}
        missing = {name for name in absent if state[name].data_ptr() not in loaded}
        if missing or load_result.unexpected_keys:
            names = sorted(missing) + sorted(load_result.unexpected_keys)
            raise CheckpointRefused(f"the checkpoint does not fit the model: {names[0]} ({len(names)} tensors in all)")
        self.model.tie_weights()
