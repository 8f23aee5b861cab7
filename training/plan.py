"""The plan of a run as text: sizes, steps, truncation and, in a dry run, time and memory."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from accelerate.utils import send_to_device
from torch import nn
from transformers import TrainingArguments

from common.streams import show
from data.draws import KeyedSampler
from data.views import Masking
from models.loading import dropout_rates
from training.callbacks import next_evaluation, peak_memory
from training.run_arguments import ADAMW, recomputes, steps_of
from training.trainer import EmbeddingTrainer

logger = logging.getLogger(__name__)
_CUT, _MUCH_CUT = 0.05, 0.2  # shares of truncated texts
_TIMED = 3  # batches of a dry run; the first is a warm-up


def plan(model: nn.Module, args: TrainingArguments, sampler: KeyedSampler, facts: dict[str, Any]) -> str:
    """The plan, one fact per line."""
    size = {True: 0, False: 0}
    for parameter in model.parameters():
        size[parameter.requires_grad] += parameter.numel()
    rates = dropout_rates(model.config)
    held_out = f", {len(sampler.held)} held out" if sampler.held else ""
    precision = ("bf16" if args.bf16 else "fp16" if args.fp16 else "float32") + ", TF32 products" * bool(args.tf32)
    memory = (_sizes(model, trained=False) + _sizes(model, trained=True)) / 1e9
    lines = {
        "model": f"{size[True]:,} trainable and {size[False]:,} frozen parameters",
        "dropout": ", ".join(f"{name} {rate}" for name, rate in rates.items()) or "none",
        "text": f"{sampler.count:,} examples{held_out}, {_steps(args, sampler.count)}",
        "processes": f"{args.world_size} on {args.device.type}, {precision}",
        "memory": f"{memory:.2g} GB of weights and gradients, {_state(model, args)}; --dry_run measures a batch",
        **facts,
    }
    return _lines(lines)


def _steps(args: TrainingArguments, count: int) -> str:
    steps = steps_of(args, count)
    batch = args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps
    epochs = steps * batch / count
    every, later = _every(args, steps), f" from step {args.eval_delay:g}" * bool(args.eval_delay)
    return f"{steps:,} steps of {batch} ({epochs:.2g} epochs), evaluated every {every:,} steps{later} and at the end"


def _first_evaluation(args: TrainingArguments, count: int) -> int:
    steps = steps_of(args, count)
    return min(steps, next_evaluation(0, _every(args, steps), args.eval_delay))


def _every(args: TrainingArguments, steps: int) -> int:
    """Steps between evaluations, which transformers rounds up from a share."""
    return math.ceil(args.eval_steps if args.eval_steps >= 1 else args.eval_steps * steps)


def _lines(facts: dict[str, Any]) -> str:
    return "\n".join(f"{name:>10}: {value}" for name, value in facts.items())


def describe_masking(masking: Sequence[Masking]) -> str:
    """The name, rate and recipe of each masking, and its stop words."""
    return ", ".join(map(_masking, masking)) or "none"


def _masking(one: Masking) -> str:
    stop_words = f"; the {one.stop_words:,} most frequent tokens are not predicted" if one.stop_words else ""
    return f"{one.name} {one.rate:.0%} ({'whole words, ' * one.whole_words}{one.recipe}{stop_words})"


def describe_truncation(lengths: np.ndarray, max_length: int, special: int, longest: int) -> str:
    """How many texts `--max_length` truncates, and a value that truncates few; warns if there are many.

    Args:
        lengths: tokens per text, without special tokens.
        max_length: the flag.
        special: special tokens per text.
        longest: the model's limit in tokens.
    """
    share = float((lengths > max_length - special).mean())
    text = f"{share:.1%} of the texts, at --max_length {max_length} tokens"
    if share <= _CUT:
        return text
    better = min(longest, int(-(-(np.quantile(lengths, 1 - _CUT) + special) // 8) * 8))
    if share > _MUCH_CUT:
        logger.warning(
            "--max_length %d truncates %.0f %% of the texts; %d would truncate fewer", max_length, 100 * share, better
        )
    return f"{text}; {better} would truncate fewer"


def dry_run(trainer: EmbeddingTrainer, description: str) -> None:
    """Run a few batches forward and backward, not compiled; print the plan, raw terms, time and memory."""
    args = trainer.args
    size = args.per_device_train_batch_size
    batch = trainer.data_collator([(0, i, 0) for i in range(size)])
    shapes = {name: " x ".join(map(str, value.shape)) for name, value in batch.items() if name != "layouts"}
    trainer.model.to(args.device).train()
    if recomputes(args):  # the stock Trainer turns it on when training begins
        model = trainer.model
        getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
    batch = send_to_device(batch, args.device)
    seconds = []
    for _ in range(_TIMED):
        start = time.perf_counter()
        output = trainer.gradients(batch)
        terms = {name: value.item() for name, value in output.terms.items()} | {"loss": output.loss.item()}
        trainer.model.zero_grad()
        seconds.append(time.perf_counter() - start)
    measured = {
        "batch": ", ".join(f"{name} {shape}" for name, shape in shapes.items()),
        "terms": ", ".join(f"{name} {value:.4f}" for name, value in terms.items()),
        "time": _time(args, trainer.sampler.count, min(seconds[1:])) + ", not compiled" * args.torch_compile,
        "measured": f"{peak_memory(args.device)}, with these batches; plus {_state(trainer.model, args)}",
    }
    if trainer.is_world_process_zero():
        show(f"{description}\n{_lines(measured)}")


def _time(args: TrainingArguments, count: int, seconds: float) -> str:
    steps, first = (
        step * args.gradient_accumulation_steps * seconds / 60
        for step in (steps_of(args, count), _first_evaluation(args, count))
    )
    times = f"about {steps:.1f} min of training ({seconds:.2g} s per batch), first evaluation after {first:.1f} min"
    return f"{times}; not counting evaluations"


def _sizes(model: nn.Module, trained: bool) -> int:
    """Bytes of the trained parameters, or of all."""
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad or not trained)


def _state(model: nn.Module, args: TrainingArguments) -> str:
    """The optimizer's memory as text; plain AdamW keeps two numbers per trained parameter."""
    if args.optim.value not in ADAMW:
        return f"the state of --optim {args.optim.value}"
    return f"{2 * _sizes(model, trained=True) / 1e9:.2g} GB of AdamW's state"
