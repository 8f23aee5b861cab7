"""What happens at the Trainer's events: hooks of each step, signals and the log."""

from __future__ import annotations

import json
from pathlib import Path

from transformers import TrainerCallback

from data.draws import KeyedSampler
from models.collectives import SharedFlag
from training.signals import STOPPING


class Steps(TrainerCallback):
    """Hooks at the start of training and of an epoch, at an optimizer step, and at the last step.

    Attributes:
        stepped: whether a step has begun: until then an error may come from the checkpoint.
    """

    def __init__(self, sampler: KeyedSampler, model) -> None:
        self.sampler, self.model = sampler, model
        self.stepped = False

    def on_train_begin(self, args, state, control, **kwargs):
        # The checkpoint restores its own intervals; --save_steps and --logging_steps may have changed.
        state.compute_steps(args, state.max_steps)

    def on_step_begin(self, args, state, control, **kwargs):
        self.stepped = True

    def on_epoch_begin(self, args, state, control, **kwargs):
        # A resumed loader wraps the sampler several times and does not pass on the epoch.
        self.sampler.set_epoch(int(state.epoch or 0))

    def on_optimizer_step(self, args, state, control, optimizer, **kwargs):
        if not optimizer.step_was_skipped:  # fp16 skips a step whose gradients are infinite
            self.model.after_step()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step >= state.max_steps:
            control.should_evaluate = control.should_log = True


class StopWhenAsked(TrainerCallback):
    """At the end of a step after a signal, log, save and leave the loop; all processes after the same step.

    That is the next end of a step, or the one after if only another process received the signal.
    """

    def __init__(self) -> None:
        self._anyone = SharedFlag()

    def on_step_end(self, args, state, control, **kwargs):
        if self._anyone.raised(STOPPING.name is not None):
            control.should_log = control.should_save = control.should_training_stop = True

    def on_train_end(self, args, state, control, **kwargs):
        self._anyone.close()


class RunLog(TrainerCallback):
    """`log.jsonl`: one JSON object per logged line; a resumed run continues at its checkpoint."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / "log.jsonl"

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.path.write_text("".join(json.dumps(line) + "\n" for line in state.log_history), encoding="utf-8")

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(state.log_history[-1]) + "\n")
