"""What is about to run, in words: sizes, steps, what `--max_length` cuts, and, in a dry run, the time and memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from accelerate.utils import send_to_device
from torch import nn
from transformers import TrainingArguments
from transformers.training_args import OptimizerNames

from common.streams import show
from common.views import Masking
from data.draws import KeyedSampler
from eval.encode import warn_of_slow_bf16
from training.pace import peak_memory
from training.run import DROPOUT
from training.run_arguments import steps_of
from training.trainer import EmbeddingTrainer

logger = logging.getLogger(__name__)
_CUT, _MUCH_CUT = 0.05, 0.2  # shares of the texts
_TIMED = 3  # batches of a dry run, of which the first one warms up


def plan(model: nn.Module, args: TrainingArguments, sampler: KeyedSampler, facts: dict[str, Any]) -> str:
    """What is about to run, as lines of text."""
    size = {True: 0, False: 0}
    for parameter in model.parameters():
        size[parameter.requires_grad] += parameter.numel()
    rates = {name: getattr(model.config, name) for name in DROPOUT if hasattr(model.config, name)}
    held_out = f", {len(sampler.held)} held out" if sampler.held else ""
    precision = ("bf16" if args.bf16 else "fp16" if args.fp16 else "float32") + ", TF32 products" * bool(args.tf32)
    if args.bf16:
        warn_of_slow_bf16(args.device.type)
    held = (_sizes(model, trained=False) + _sizes(model, trained=True)) / 1e9
    lines = {
        "model": f"{size[True]:,} trainable and {size[False]:,} frozen parameters",
        "dropout": ", ".join(f"{name} {rate}" for name, rate in rates.items()) or "none",
        "text": f"{sampler.count:,} examples{held_out}, {_steps(args, sampler.count)}",
        "processes": f"{args.world_size} on {args.device.type}, {precision}",
        "memory": f"{held:.2g} GB of weights and gradients, {_state(model, args)}; --dry_run measures a batch",
        **facts,
    }
    return _lines(lines)


def _steps(args: TrainingArguments, count: int) -> str:
    steps = steps_of(args, count)
    batch = args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps
    epochs = steps * batch / count
    every = _first_evaluation(args, count)
    return f"{steps:,} steps of {batch} ({epochs:.2g} epochs), evaluated every {every:,} steps and at the end"


def _first_evaluation(args: TrainingArguments, count: int) -> int:
    """The step of the first evaluation."""
    steps = steps_of(args, count)
    return min(steps, round(args.eval_steps if args.eval_steps >= 1 else args.eval_steps * steps))


def _lines(facts: dict[str, Any]) -> str:
    return "\n".join(f"{name:>10}: {value}" for name, value in facts.items())


def masking_in_words(masking: Sequence[Masking]) -> str:
    """Which twins get which masks."""
    told = [f"{one.name} {one.rate:.0%} ({'whole words, ' * one.whole_words}{one.recipe})" for one in masking]
    return ", ".join(told) or "none"


def cut_in_words(lengths: np.ndarray, max_length: int, special: int, most: int) -> str:
    """How many texts `--max_length` cuts, and which value would cut few; many log a warning.

    Args:
        lengths: tokens of texts, without special ones.
        max_length: the flag.
        special: special tokens of a text.
        most: tokens that the model takes.
    """
    share = float((lengths > max_length - special).mean())
    said = f"{share:.1%} of the texts, at --max_length {max_length} tokens"
    if share <= _CUT:
        return said
    enough = min(most, int(-(-(np.quantile(lengths, 1 - _CUT) + special) // 8) * 8))
    if share > _MUCH_CUT:
        said_of_many = "--max_length %d cuts %.0f %% of the texts; %d would cut fewer"
        logger.warning(said_of_many, max_length, 100 * share, enough)
    return f"{said}; {enough} would cut fewer"


def dry_run(trainer: EmbeddingTrainer, description: str) -> None:
    """Some batches through model, losses and gradients; prints the plan, the raw terms, minutes and memory."""
    args = trainer.args
    size = args.per_device_train_batch_size
    batch = trainer.data_collator([(0, i, 0) for i in range(size)])
    shapes = {name: " x ".join(map(str, value.shape)) for name, value in batch.items() if name != "layouts"}
    trainer.model.to(args.device).train()
    batch = send_to_device(batch, args.device)
    seconds = []
    for _ in range(_TIMED):
        start = time.perf_counter()
        output = trainer.gradients(batch)
        terms = {name: value.item() for name, value in output.terms.items()} | {"loss": output.loss.item()}
        trainer.model.zero_grad()
        seconds.append(time.perf_counter() - start)
    found = {
        "batch": ", ".join(f"{name} {shape}" for name, shape in shapes.items()),
        "terms": ", ".join(f"{name} {value:.4f}" for name, value in terms.items()),
        "time": _time(args, trainer.sampler.count, min(seconds[1:])),
        "memory": f"{peak_memory(args.device)}, measured with these batches; on top {_state(trainer.model, args)}",
    }
    show(f"{description}\n{_lines(found)}")


def _time(args: TrainingArguments, count: int, seconds: float) -> str:
    steps, first = (
        step * args.gradient_accumulation_steps * seconds / 60
        for step in (steps_of(args, count), _first_evaluation(args, count))
    )
    said = f"about {steps:.1f} min of training ({seconds:.2g} s a batch), the first evaluation after {first:.1f} min"
    return f"{said}; evaluations are not counted"


def _sizes(model: nn.Module, trained: bool) -> int:
    """Bytes of the parameters that are trained, or of all."""
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad or not trained)


def _state(model: nn.Module, args: TrainingArguments) -> str:
    """What the optimizer holds: two numbers a trained parameter, where it is plain AdamW."""
    name = OptimizerNames(args.optim).value
    if name not in ("adamw_torch", "adamw_torch_fused"):
        return f"the state of --optim {name}"
    return f"{2 * _sizes(model, trained=True) / 1e9:.2g} GB of AdamW's state"
