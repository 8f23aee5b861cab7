"""Estimate a run's time and memory from its first steps and log it once."""

from __future__ import annotations

import logging
import math
import time
from statistics import median

import torch
from tqdm import tqdm
from transformers import TrainerCallback

from common.memory import peak_mib

logger = logging.getLogger(__name__)
_TIMED = 3  # steps, after one warm-up step


class Pace(TrainerCallback):
    """Logs one line after the first steps of every start; excludes evaluations and checkpoints."""

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
    first = state.eval_steps * math.ceil(max(done + 1, args.eval_delay) / state.eval_steps)
    events = [("next evaluation", first)] if first < last else []
    events += [("end" if events else "last evaluation and end", last)]
    times = ", ".join(f"{event} (step {step:,}) in about {duration((step - done) * seconds)}" for event, step in events)
    return f"{seconds:.2g} s per step: {times}, not counting evaluations"


def duration(seconds: float) -> str:
    """Seconds as text: 90 s, 25 min, 3.5 h."""
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def peak_memory(device: torch.device) -> str:
    """The measured peak of this process, or of its GPU, as text."""
    if device.type == "cuda":
        return f"at most {torch.cuda.max_memory_allocated(device) / 1e9:.2g} GB on the GPU"
    return f"at most {peak_mib() * 2**20 / 1e9:.2g} GB of memory, including libraries"
