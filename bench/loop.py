"""A training step's cost outside forward, backward and optimizer, beside the published loop's.

Both train a model with one parameter on the same generated sentences, two views and their masked
twins per step. The CPU time of a step is the slope between two runs of different length, without
start-up costs. Goal: 1 ms for 64 sentences.

The table `host` is the CPU time, by part, that a step with --cuda_graph leaves to the host of a
GPU: the graph computes nothing here, and the models have as many tensors as bert-base.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor, nn
from transformers import (
    DataCollatorForLanguageModeling,
    IntervalStrategy,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainerCallback,
)

from bench.cases import STAGE_ONE, TINY, Case, Materials
from bench.timing import Timed, measured
from common.flags import positive
from models.training import TrainingOutput
from training.graph import GraphedStep
from training.run_arguments import RunArguments
from training.trainer import EmbeddingTrainer

MASK_RATE = 0.4  # of configs/infocse-bert-base.yaml


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=positive, default=64, help="sentences per step")
    parser.add_argument("--length", type=positive, default=32, help="maximum tokens per sentence")
    parser.add_argument("--rows", type=positive, default=20_000, help="generated sentences")
    steps = "lengths of the two runs"
    parser.add_argument("--steps", type=positive, nargs=2, default=[100, 500], help=steps)


def rows(args: argparse.Namespace) -> list[dict]:
    """Milliseconds of CPU time per step: the loop's, the median over `runs` slopes; the host's."""
    sizes = TINY | {"num_hidden_layers": 12, "initializer_range": 0.3}
    with TemporaryDirectory() as folder:
        materials = Materials(Path(folder), sizes, args.batch, args.length, rows=args.rows)
        host = [host_of(materials, name, args.steps) for name in ("simcse", "infocse", STAGE_ONE)]
        _, collator = materials.parts(Case("infocse"))
        pairs = tokenised(materials.lines, materials.tokenizer, args.length)
        their_collator = PairCollator(materials.tokenizer, MASK_RATE)

        def ours(steps: int) -> Trainer:
            arguments = arguments_of(args, steps, folder)
            return EmbeddingTrainer(OneParameter(), arguments, collator, args.rows)

        def plain(steps: int) -> Trainer:
            arguments = arguments_of(args, steps, folder)
            return Trainer(OneParameter(), arguments, their_collator, pairs)

        plain_ms, ours_ms = [], []
        for _ in range(args.runs):
            plain_ms.append(slope(plain, args.steps))
            ours_ms.append(slope(ours, args.steps))
    timed = Timed(statistics.median(plain_ms), statistics.median(ours_ms))
    return [timed.row("loop", "fp32", "one parameter", args.runs), *host]


def host_of(materials: Materials, name: str, lengths: list[int]) -> dict:
    """Median milliseconds of the parts of a step, after as many steps as the shorter run has."""
    case = Case(name)
    flags = {"save_strategy": "no", "max_steps": sum(lengths), "disable_tqdm": True}
    trainer: Any = materials.trainer(case, cuda_graph=True, **flags)  # a GraphedTrainer
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
    steps = parts.steps[lengths[0] :]
    medians = {part: statistics.median(step.get(part, 0) for step in steps) for part in steps[0]}
    return {"part": "host", "name": name} | {part: round(ms, 2) for part, ms in medians.items()}


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


class OneParameter(nn.Module):
    """A model that costs almost nothing and ignores its batch."""

    accepts_loss_kwargs = False

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, **batch: Tensor) -> TrainingOutput:
        loss = self.weight.square()
        terms = {"contrastive": loss.detach(), "aux_mlm": loss.detach()}
        return TrainingOutput(loss=loss, terms=terms)

    def probe(self, **batch: Tensor) -> dict[str, float]:
        return {"uniformity": -1.0}

    def after_step(self) -> None:
        """Nothing follows a step."""


def arguments_of(args: argparse.Namespace, steps: int, folder: str) -> RunArguments:
    arguments = RunArguments(
        output_dir=folder,
        per_device_train_batch_size=args.batch,
        max_steps=steps,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
    )
    arguments.eval_strategy = IntervalStrategy.NO  # not a flag of our runs; only the loop is timed
    return arguments


def slope(trainer: Callable[[int], Trainer], lengths: list[int]) -> float:
    """CPU milliseconds per step, from the difference of two runs; `trainer` is of so many steps."""

    def train(steps: int) -> None:
        made = trainer(steps)
        made.remove_callback(PrinterCallback)  # the log lines of this model mean nothing
        made.train()

    short, long = (measured(train, steps)[0] for steps in lengths)
    return (long - short) / (lengths[1] - lengths[0])


def tokenised(lines: list[str], tokenizer: PreTrainedTokenizerBase, longest: int) -> Dataset:
    """Rows as stored by SimCSE's and InfoCSE's `prepare_features`: lists of two equal views."""
    encoded = tokenizer(lines, truncation=True, max_length=longest)
    names = ("input_ids", "attention_mask", "token_type_ids")
    return Dataset.from_dict({name: [[ids, ids] for ids in encoded[name]] for name in names})


class PairCollator:
    """`OurDataCollatorWithPadding` of the published code: pads and masks all views, (B, 2, L)."""

    def __init__(self, tokenizer, mask_rate: float) -> None:
        self.tokenizer = tokenizer
        self.mask = DataCollatorForLanguageModeling(tokenizer, mlm_probability=mask_rate)

    def __call__(self, features: list[dict]) -> dict[str, Tensor]:
        views = len(features[0]["input_ids"])
        flat = []
        for feature in features:
            for view in range(views):
                flat.append({name: values[view] for name, values in feature.items()})
        batch = self.tokenizer.pad(flat, padding=True, return_tensors="pt")
        masked = self.mask.torch_mask_tokens(batch["input_ids"].clone())
        batch["mlm_input_ids"], batch["mlm_labels"] = masked
        return {name: value.view(len(features), views, -1) for name, value in batch.items()}
