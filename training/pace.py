"""How long a run will take and what memory it needs: measured on the first steps of every start, and said once."""

from __future__ import annotations

import logging
import math
import time
from statistics import median

import torch
from tqdm import tqdm
from transformers import TrainerCallback

from common.progress import peak_mib

logger = logging.getLogger(__name__)
_TIMED = 3  # steps, behind a first one that warms up


class Pace(TrainerCallback):
    """One line after the first steps, of a resumed run too; evaluations and checkpoints among them are not timed."""

    def on_train_begin(self, args, state, control, **kwargs):
        self._seconds: list[float] = []
        self._ended: float | None = None  # the step before, unless something else was done since

    def on_evaluate(self, args, state, control, **kwargs):
        self._ended = None

    on_save = on_evaluate

    def on_step_end(self, args, state, control, **kwargs):
        if len(self._seconds) == _TIMED:
            return
        if args.device.type == "cuda":
            torch.cuda.synchronize(args.device)  # what was asked of it is done: these few steps wait, no other does
        now = time.perf_counter()
        self._seconds += [] if self._ended is None else [now - self._ended]
        self._ended = now
        if len(self._seconds) == _TIMED and state.is_world_process_zero:
            with tqdm.external_write_mode():
                logger.info("%s; so far %s", _outlook(args, state, median(self._seconds)), peak_memory(args.device))


def _outlook(args, state, seconds: float) -> str:
    """When the next evaluation and the last step come, at so many seconds a step."""
    done, last = state.global_step, state.max_steps
    first = state.eval_steps * math.ceil(max(done + 1, args.eval_delay) / state.eval_steps)
    told = [("the next evaluation", first)] if first < last else []
    told += [("the end" if told else "the last evaluation and the end", last)]
    said = ", ".join(f"{what} (step {step:,}) in about {in_words((step - done) * seconds)}" for what, step in told)
    return f"{seconds:.2g} s a step: {said}, time for evaluations not counted"


def in_words(seconds: float) -> str:
    """A duration in its unit: 90 s, 25 min, 3.5 h."""
    minutes = seconds / 60
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def peak_memory(device: torch.device) -> str:
    """The measured peak of this process, or of its GPU."""
    if device.type == "cuda":
        return f"at most {torch.cuda.max_memory_allocated(device) / 1e9:.2g} GB on the GPU"
    return f"at most {peak_mib() * 2**20 / 1e9:.2g} GB of memory, libraries included"
