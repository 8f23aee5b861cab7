"""What happens beside the Trainer's loop: epochs and steps, a request to stop, the log file."""

from __future__ import annotations

import json
from pathlib import Path

from transformers import TrainerCallback

from data.draws import KeyedSampler
from models.collectives import SharedFlag, world_size
from training.stopping import STOPPING


class Steps(TrainerCallback):
    """What has to happen at an epoch's begin, after an optimizer step, and at the last step."""

    def __init__(self, sampler: KeyedSampler, model) -> None:
        self.sampler, self.model = sampler, model

    def on_train_begin(self, args, state, control, **kwargs):
        # A checkpoint brings the intervals it was written with; --save_steps and --logging_steps may have changed.
        state.compute_steps(args, state.max_steps)
        state.best_global_step = state.best_model_checkpoint = None  # the best model is no checkpoint

    def on_epoch_begin(self, args, state, control, **kwargs):
        # A resumed loader hides the sampler behind several wrappers that do not pass the epoch on.
        self.sampler.set_epoch(int(state.epoch or 0))

    def on_optimizer_step(self, args, state, control, **kwargs):
        self.model.after_step()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step >= state.max_steps:
            control.should_evaluate = control.should_log = True
        return control


class StopWhenAsked(TrainerCallback):
    """After a signal: finish the step, log, save and leave the loop; all processes after the same step.

    With one process a signal during an evaluation saves its step, and one during a save ends the loop after it. With
    several, the next step end sees it, and the one after that in a process that did not get the signal itself.
    """

    def __init__(self) -> None:
        self._anyone = SharedFlag()

    def on_step_end(self, args, state, control, **kwargs):
        if self._anyone.raised(STOPPING.name is not None):
            control.should_log = control.should_save = control.should_training_stop = True
        return control

    def on_evaluate(self, args, state, control, **kwargs):
        if STOPPING.name is not None and world_size() == 1:
            control.should_save = control.should_training_stop = True
        return control

    def on_save(self, args, state, control, **kwargs):
        if STOPPING.name is not None and world_size() == 1:
            control.should_training_stop = True
        return control

    def on_train_end(self, args, state, control, **kwargs):
        self._anyone.close()


class RunLog(TrainerCallback):
    """`log.jsonl`: one JSON object a logged line; a resumed run continues where its checkpoint was."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / "log.jsonl"

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.path.write_text("".join(json.dumps(line) + "\n" for line in state.log_history), encoding="utf-8")

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(state.log_history[-1]) + "\n")
