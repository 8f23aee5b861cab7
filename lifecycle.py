"""What both training scripts share: the record of a run, its plan, its start and its end."""

from __future__ import annotations

import hashlib
import logging
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import TrainingArguments

from arguments import MAY_DIFFER
from checkpoint import Start, open_run, write_run
from report.curves import draw
from trainer import EmbeddingTrainer, RunLog

logger = logging.getLogger(__name__)
_PACKAGES = ("torch", "transformers", "accelerate", "datasets", "tokenizers", "numpy", "scipy")
_DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout",
            "embedding_dropout", "mlp_dropout")  # fmt: skip


class Run:
    """One run of a training script, from its settings to its finished folder.

    Args:
        script: the script's name, for the record.
        groups: the parsed dataclasses; the TrainingArguments among them name the folder.
        identity: what the settings name by path, by content: hashes of the text and of the start checkpoint.
    """

    def __init__(self, script: str, argv: Sequence[str], groups: Sequence[Any], identity: dict[str, Any]) -> None:
        self.args: TrainingArguments = next(g for g in groups if isinstance(g, TrainingArguments))
        settings = {name: value for group in groups for name, value in _settings(group).items()}
        self.trajectory = {k: v for k, v in settings.items() if k not in MAY_DIFFER}
        self.trajectory |= identity | {"script": script, "world_size": self.args.world_size}
        self.record = {
            "format": 1,
            "script": script,
            "command": ["python", script, *argv],
            "settings": settings,
            "trajectory": self.trajectory,
            **provenance(),
        }
        self._began = time.time()

    def open(self, dry_run: bool) -> Start:
        """Decide whether to start, to resume or to stop; see `checkpoint.open_run`. A dry run leaves no folder."""
        if dry_run:
            self.args.output_dir = tempfile.mkdtemp(prefix="dry-run-")
        if self.args.process_index > 0:
            logging.disable(logging.WARNING)  # one voice
        start = open_run(self.args.output_dir, self.trajectory)
        if start.finished:
            logger.info("%s: already finished; nothing to do", self.args.output_dir)
        return start

    def train(self, trainer: EmbeddingTrainer, start: Start, description: str) -> None:
        """Run the Trainer from its start or checkpoint, with the record written before the first step."""
        logger.info(description)
        folder = self.args.output_dir
        if trainer.is_world_process_zero():
            write_run(folder, self.record | {"status": "running"})
        trainer.accelerator.wait_for_everyone()
        trainer.add_callback(RunLog(folder))
        if start.checkpoint:
            logger.info("resuming from %s", start.checkpoint)
        trainer.train(resume_from_checkpoint=start.checkpoint)

    def finish(self, trainer: EmbeddingTrainer, facts: dict[str, Any]) -> None:
        """Draw the curves and mark the run finished; the last thing written."""
        draw(trainer.state.log_history, Path(self.args.output_dir) / "curves.png")
        seconds = round(time.time() - self._began, 1)
        facts = facts | {
            "steps": trainer.state.global_step,
            "seconds_of_last_start": seconds,
            "status": "finished",
        }
        write_run(self.args.output_dir, self.record | facts)
        logger.info("%s: finished in %.0f s", self.args.output_dir, seconds)


def _settings(group: Any) -> dict[str, Any]:
    values = group.to_dict() if isinstance(group, TrainingArguments) else vars(group)
    return {f.name: values[f.name] for f in fields(group) if f.init and f.name in values}


def provenance() -> dict[str, Any]:
    """Versions, commit and machine, as far as they bear on numbers."""
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        "commit": _git("rev-parse", "HEAD"),
        "changed_files": len((_git("status", "--porcelain") or "").splitlines()),
        "hardware": {
            "machine": platform.machine(),
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "threads": torch.get_num_threads(),
        },
    }


def _git(*command: str) -> str | None:
    root = Path(__file__).parent
    try:
        done = subprocess.run(["git", "-C", str(root), *command], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def weights_hash(path: str) -> str:
    """sha256 of the weights of a local folder; of a hub id, the id itself."""
    file = Path(path) / "model.safetensors"
    if not file.is_file():
        return path
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def set_dropout(config, rate: float | None) -> None:
    """Give every dropout rate of a configuration one value; None leaves the checkpoint's own."""
    for name in _DROPOUT:
        if rate is not None and hasattr(config, name):
            setattr(config, name, rate)


def plan(model: nn.Module, args: TrainingArguments, count: int, facts: dict[str, Any]) -> str:
    """What is about to run, in words."""
    size = {True: 0, False: 0}
    for parameter in model.parameters():
        size[parameter.requires_grad] += parameter.numel()
    rates = {name: getattr(model.config, name) for name in _DROPOUT if hasattr(model.config, name)}
    batch = args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps
    steps = args.max_steps if args.max_steps > 0 else int(count // batch * args.num_train_epochs)
    lines = {
        "model": f"{size[True]:,} trainable and {size[False]:,} frozen parameters",
        "dropout": ", ".join(f"{name} {rate}" for name, rate in rates.items()),
        "text": f"{count:,} examples, {steps:,} steps of {batch}",
        "processes": f"{args.world_size} on {args.device.type}, {'bf16' if args.bf16 else 'float32'}",
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
    sys.stdout.write(f"{description}\n{'batch':>10}: {shapes}\n{'terms':>10}: {terms}; loss {float(output.loss):.4f}\n")
