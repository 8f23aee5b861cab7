"""Time the steps of a training, and two implementations by turns in one process.

So a slow phase of the machine meets both.
"""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from transformers import PrinterCallback, TrainerCallback

from training.trainer import EmbeddingTrainer


def alternate(
    plain: Callable[[int], Any], ours: Callable[[int], Any], runs: int
) -> dict[str, float]:
    """Median CPU milliseconds of a call of each, over all threads, and their ratio.

    Both are called by turns with 0, 1, ... `runs` - 1, and first with -1, unmeasured.
    """
    spent: dict[str, list[float]] = {"plain_ms": [], "ours_ms": []}
    for number in range(-1, runs):
        for name, call in (("plain_ms", plain), ("ours_ms", ours)):
            start = time.process_time()
            call(number)
            if number >= 0:
                spent[name].append(1000 * (time.process_time() - start))
    medians = {name: statistics.median(times) for name, times in spent.items()}
    ratio = medians["plain_ms"] / medians["ours_ms"]
    return {name: round(ms, 2) for name, ms in medians.items()} | {"ratio": round(ratio, 2)}


def apart(function: Callable, *args: Any) -> Any:
    """Call a function in a fresh process: earlier work changes the state of the allocator."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(function, *args).result()


def step_ms(
    trainer: EmbeddingTrainer, warm: int, window: int = 1, longest: float = float("inf")
) -> float:
    """Median milliseconds of a step of a training, see `Clock`."""
    clock = Clock(warm, window, longest)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(clock)
    trainer.train()
    spans = [later - earlier for earlier, later in itertools.pairwise(clock.times)]
    return 1000 * statistics.median(spans) / window


class Clock(TrainerCallback):
    """The times at which the device has finished step `warm` and every `window`-th one after it.

    A training of more than `longest` seconds ends with its second such step.
    """

    def __init__(self, warm: int, window: int, longest: float) -> None:
        self.warm, self.window, self.longest = warm, window, longest
        self.began = time.perf_counter()
        self.times: list[float] = []

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step >= self.warm and (state.global_step - self.warm) % self.window == 0:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.times.append(time.perf_counter())
            if self.times[-1] - self.began > self.longest and len(self.times) > 1:
                control.should_training_stop = True
