"""What happens at the Trainer's events: hooks of each step, signals, the progress bar, the log, and a time estimate."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from pathlib import Path
from statistics import median

import torch
from tqdm import tqdm
from transformers import ProgressCallback, TrainerCallback

from common.memory import peak_mib
from common.progress import progress
from data.draws import KeyedSampler
from models.collectives import SharedFlag, world_size
from training.signals import STOPPING

logger = logging.getLogger(__name__)
_TIMED = 3  # steps, after one warm-up step


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
    """After a signal, finish the step, log, save and leave the loop; all processes after the same step.

    With one process, a signal during an evaluation saves that step, and one during a save ends the loop after it. With
    several, it takes effect at the next end of a step, or at the one after if only another process received it.
    """

    def __init__(self) -> None:
        self._anyone = SharedFlag()

    def on_step_end(self, args, state, control, **kwargs):
        if self._anyone.raised(STOPPING.name is not None):
            control.should_log = control.should_save = control.should_training_stop = True

    def on_evaluate(self, args, state, control, **kwargs):
        if STOPPING.name is not None and world_size() == 1:
            control.should_save = control.should_training_stop = True

    def on_save(self, args, state, control, **kwargs):
        if STOPPING.name is not None and world_size() == 1:
            control.should_training_stop = True

    def on_train_end(self, args, state, control, **kwargs):
        self._anyone.close()


class ResumedProgress(ProgressCallback):
    """The stock progress bar with readable logs; a resumed run's earlier steps do not distort its speed."""

    def on_train_begin(self, args, state, control, **kwargs):
        self.current_step = state.global_step
        if state.is_world_process_zero:
            shown = not args.disable_tqdm
            self.training_bar = progress(state.max_steps, "train", "step", shown, done=state.global_step)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and self.training_bar is not None:
            shown = {name: value for name, value in logs.items() if name != "total_flos"}
            values = (f"{name} {value:{',' if isinstance(value, int) else '.4g'}}" for name, value in shown.items())
            self.training_bar.write(f"step {state.global_step}: {', '.join(values)}")
            sys.stdout.flush()  # a redirected log shows the line now, not when its buffer is full


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


class Pace(TrainerCallback):
    """Logs one line on time and memory after the first steps of every start; excludes evaluations and checkpoints."""

    def on_train_begin(self, args, state, control, **kwargs):
        self._seconds: list[float] = []
        self._ended: float | None = None  # end of the previous step; None after an evaluation or save

    def on_evaluate(self, args, state, control, **kwargs):
        self._ended = None

    on_save = on_evaluate

    def on_step_end(self, args, state, control, **kwargs):
        if len(self._seconds) == _TIMED:
            return
        if args.device.type == "cuda":
            torch.cuda.synchronize(args.device)  # only these few steps wait
        now = time.perf_counter()
        self._seconds += [] if self._ended is None else [now - self._ended]
        self._ended = now
        if len(self._seconds) == _TIMED and state.is_world_process_zero:
            with tqdm.external_write_mode():
                logger.info("%s; so far %s", _estimate(args, state, median(self._seconds)), peak_memory(args.device))


def _estimate(args, state, seconds: float) -> str:
    """Time until the next evaluation and the last step, at `seconds` per step."""
    done, last = state.global_step, state.max_steps
    first = next_evaluation(done, state.eval_steps, args.eval_delay)
    events = [("next evaluation", first)] if first < last else []
    events += [("end" if events else "last evaluation and end", last)]
    times = ", ".join(f"{event} (step {step:,}) in about {duration((step - done) * seconds)}" for event, step in events)
    return f"{seconds:.2g} s per step: {times}, not counting evaluations"


def next_evaluation(done: int, every: int, delay: float) -> int:
    """The step of the next evaluation after `done` steps: a multiple of `every`, and `delay` or later."""
    return every * math.ceil(max(done + 1, delay) / every)


def duration(seconds: float) -> str:
    """Seconds as text: 90 s, 25 min, 3.5 h."""
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def peak_memory(device: torch.device) -> str:
    """The measured peak of this process, or of its GPU, as text."""
    if device.type == "cuda":
        return f"at most {torch.cuda.max_memory_allocated(device) / 1e9:.2g} GB on the GPU"
    return f"at most {peak_mib() * 2**20 / 1e9:.2g} GB of memory, including libraries"
