"""The plan of a run as text: sizes, steps and, in a dry run, time and memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils import send_to_device
from torch import nn
from transformers import TrainingArguments

from common.memory import peak_mib
from common.streams import show
from data.draws import KeyedSampler
from data.views import Masking
from models.loading import dropout_rates
from training.run_arguments import recomputes, steps_of
from training.trainer import EmbeddingTrainer

_TIMED = 3  # batches of a dry run; the first is a warm-up


def plan(model: nn.Module, args: TrainingArguments, sampler: KeyedSampler, facts: dict[str, Any]) -> str:
    """The plan, one fact per line."""
    size = {True: 0, False: 0}
    for parameter in model.parameters():
        size[parameter.requires_grad] += parameter.numel()
    rates = dropout_rates(model.config)
    held_out = f", {len(sampler.held)} held out" if sampler.held else ""
    steps = steps_of(args, sampler.count)
    batch = args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps
    precision = ("bf16" if args.bf16 else "fp16" if args.fp16 else "float32") + ", TF32 products" * bool(args.tf32)
    lines = {
        "model": f"{size[True]:,} trainable and {size[False]:,} frozen parameters",
        "dropout": ", ".join(f"{name} {rate}" for name, rate in rates.items()) or "none",
        "text": f"{sampler.count:,} examples{held_out}, {steps:,} steps of {batch} "
        f"({steps * batch / sampler.count:.2g} epochs)",
        "processes": f"{args.world_size} on {args.device.type}, {precision}",
        **facts,
    }
    return _lines(lines)


def describe_masking(masking: Sequence[Masking]) -> str:
    """The name, rate and recipe of each masking."""
    return ", ".join(f"{m.name} {m.rate:.0%} ({'whole words, ' * m.whole_words}{m.recipe})" for m in masking) or "none"


def dry_run(trainer: EmbeddingTrainer, description: str) -> None:
    """Run a few batches forward and backward, not compiled; print the plan, raw terms, time and memory."""
    args = trainer.args
    batch = trainer.data_collator([(0, i, 0) for i in range(args.per_device_train_batch_size)])
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
    fastest = min(seconds[1:])
    minutes = steps_of(args, trainer.sampler.count) * args.gradient_accumulation_steps * fastest / 60
    on_gpu = args.device.type == "cuda"
    peak = torch.cuda.max_memory_allocated(args.device) if on_gpu else peak_mib() * 2**20
    measured = {
        "batch": ", ".join(f"{name} {shape}" for name, shape in shapes.items()),
        "terms": ", ".join(f"{name} {value:.4f}" for name, value in terms.items()),
        "time": f"about {minutes:.1f} min of training ({fastest:.2g} s per batch), not counting evaluations",
        "memory": f"{peak / 1e9:.2g} GB{' on the GPU' if on_gpu else ''}, without the optimizer's state",
    }
    if trainer.is_world_process_zero():
        show(f"{description}\n{_lines(measured)}")


def _lines(facts: dict[str, Any]) -> str:
    return "\n".join(f"{name:>10}: {value}" for name, value in facts.items())
