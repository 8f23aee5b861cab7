"""What is about to run, in words and as one batch; nothing is written."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import TrainingArguments

from common.streams import show
from data.sampler import KeyedSampler
from eval.encode import warn_of_slow_bf16
from training.lifecycle import DROPOUT
from training.storage import steps_of
from training.trainer import EmbeddingTrainer


def plan(model: nn.Module, args: TrainingArguments, sampler: KeyedSampler, facts: dict[str, Any]) -> str:
    """What is about to run, in words."""
    size = {True: 0, False: 0}
    for parameter in model.parameters():
        size[parameter.requires_grad] += parameter.numel()
    rates = {name: getattr(model.config, name) for name in DROPOUT if hasattr(model.config, name)}
    batch = args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps
    steps = steps_of(args, sampler.count)
    held_out = f", {len(sampler.held)} held out" if sampler.held else ""
    precision = "bf16" if args.bf16 else "fp16" if args.fp16 else "float32"
    if args.bf16:
        warn_of_slow_bf16(args.device.type)
    lines = {
        "model": f"{size[True]:,} trainable and {size[False]:,} frozen parameters",
        "dropout": ", ".join(f"{name} {rate}" for name, rate in rates.items()),
        "text": f"{sampler.count:,} examples{held_out}, {steps:,} steps of {batch}",
        "processes": f"{args.world_size} on {args.device.type}, {precision}",
        **facts,
    }
    return "\n".join(f"{name:>10}: {value}" for name, value in lines.items())


def dry_run(trainer: EmbeddingTrainer, description: str) -> None:
    """One batch through model and losses; prints the plan and the raw terms."""
    size = trainer.args.per_device_train_batch_size
    batch = trainer.data_collator([(0, i, 0) for i in range(size)])
    shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in batch.items())
    trainer.model.train()
    batch = {name: value.to(trainer.args.device) for name, value in batch.items()}
    with torch.no_grad(), trainer.accelerator.autocast():
        output = trainer.model.to(trainer.args.device)(**batch)
    terms = ", ".join(f"{name} {float(value):.4f}" for name, value in output.terms.items())
    show(f"{description}\n{'batch':>10}: {shapes}\n{'terms':>10}: {terms}; loss {float(output.loss):.4f}")
