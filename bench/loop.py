"""The CPU time, by part, that a training step with --cuda_graph leaves to the host of a GPU.

The graph computes nothing here, and the models have as many tensors as bert-base. Medians over the
steps after the first fifth, in milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import IntervalStrategy, PrinterCallback, TrainerCallback

from bench.cases import STAGE_ONE, TINY, Case, Materials
from common.flags import positive
from training.graph import GraphedStep


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=positive, default=64, help="sentences per step")
    parser.add_argument("--length", type=positive, default=32, help="maximum tokens per sentence")
    parser.add_argument(
        "--steps", type=positive, default=500, help="steps to measure, one epoch of the text"
    )


def rows(args: argparse.Namespace) -> list[dict]:
    """The parts of a step of SimCSE, InfoCSE and stage 1."""
    sizes = TINY | {"num_hidden_layers": 12, "initializer_range": 0.3}
    with TemporaryDirectory() as folder:
        text = args.batch * (args.steps + 1)
        materials = Materials(Path(folder), sizes, args.batch, args.length, rows=text)
        names = ("simcse", "infocse", STAGE_ONE)
        return [host_of(materials, name, args.steps) for name in names]


def host_of(materials: Materials, name: str, count: int) -> dict:
    """Median milliseconds of the parts of a step."""
    flags = {"save_strategy": "no", "max_steps": count + 1, "disable_tqdm": True}
    trainer: Any = materials.trainer(Case(name), cuda_graph=True, **flags)  # a GraphedTrainer
    trainer.args.eval_strategy = IntervalStrategy.NO
    trainer.step = NoDevice(trainer.model, trainer.accelerator.autocast)
    parts = Parts()
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(parts)
    parts.watch(trainer, "data_collator", "collation")
    parts.watch(trainer, "get_batch_samples", "loader")
    parts.watch(trainer, "training_step", "graph")
    parts.watch(trainer.accelerator, "clip_grad_norm_", "checks")
    parts.watch(trainer.callback_handler, "call_event", "callbacks")
    trainer.train()
    steps = parts.steps[count // 5 :]
    medians = {part: statistics.median(step.get(part, 0) for step in steps) for part in steps[0]}
    return {"name": name} | {part: round(ms, 2) for part, ms in medians.items()}


class NoDevice(GraphedStep):
    """Computes a step of every shape and then repeats its result, as the host of a GPU sees it."""

    def capture(self, inputs, shares):
        taken = self.take(inputs, shares)
        gradients = [parameter.grad for parameter in self.trained]

        def replay():
            self.attach(gradients)
            return taken

        return replay


class Parts(TrainerCallback):
    """CPU milliseconds of every step by part, without the parts within a part, and in all."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self._spent: dict[str, float] = defaultdict(float)
        self._inner, self._start = 0.0, 0.0

    def watch(self, owner: object, method: str, part: str) -> None:
        """Measure the calls of a method."""
        call = getattr(owner, method)

        @wraps(call)
        def watched(*args, **kwargs):
            start, outer, self._inner = time.thread_time(), self._inner, 0.0
            try:
                return call(*args, **kwargs)
            finally:
                spent = time.thread_time() - start
                self._spent[part] += 1000 * (spent - self._inner)
                self._inner = outer + spent

        setattr(owner, method, watched)

    def on_train_begin(self, args, state, control, optimizer=None, **kwargs):
        self.watch(optimizer, "step", "AdamW")

    def on_step_begin(self, args, state, control, **kwargs):
        now = time.thread_time()
        if state.global_step:
            spent = 1000 * (now - self._start)
            rest = spent - sum(self._spent.values())
            self.steps.append({**self._spent, "rest": rest, "all": spent})
        self._spent.clear()
        self._start = now
