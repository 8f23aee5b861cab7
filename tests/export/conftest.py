"""A run folder to export."""

from __future__ import annotations

import json

import pytest
import torch

from data.template import mask_place, templated
from models.encoder import SentenceEncoder
from models.heads import Head, Normalize, projection_named
from models.loading import load_backbone, load_tokenizer


def _score(task, aggregation, n, value, headline=True):
    key = {"task": task, "split": "test", "mode": "test", "metric": "spearman"}
    return key | {"aggregation": aggregation, "n": n, "value": value, "headline": headline}


SCORES = [
    _score("STS12", "all", 3108, 62.376),
    _score("STS12", "mean of subsets", 3108, 60.125, False),
    _score("STS-B", "single", 1379, 70.448),
    _score("Avg.", "mean of tasks", 4487, 66.415),
]


def record() -> dict:
    """A run.json as run_unsup.py writes it, in short."""
    text = {"columns": 1, "files": ["mine.txt"], "rows": 1234, "sha256": "cd" * 32}
    trajectory = {
        "method": "simcse",
        "pooling": "avg",
        "temperature": 0.1,
        "max_length": 32,
        "learning_rate": 3e-5,
        "per_device_train_batch_size": 64,
        "max_steps": 500,
        "num_train_epochs": 1.0,
        "seed": 17,
        "world_size": 1,
        "script": "run_unsup.py",
        "start": "ab" * 32,
        "text": text,
    }
    settings = {"method": "simcse", "seed": 17, "model_name_or_path": "runs/aux"}
    return {
        "format": 1,
        "script": "run_unsup.py",
        "command": ["python", "run_unsup.py", "--bf16"],
        "settings": settings,
        "trajectory": trajectory,
        "best": {"step": 375, "value": 80.92},
        "steps": 500,
        "status": "finished",
        "commit": "ef" * 20,
        "changed_files": 0,
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        "hardware": {"device": "cpu"},
    }


@pytest.fixture
def make_run(tiny_bert, tmp_path):
    """A run folder with this `pooling` and `head`, `run` and `scores` (None: no such file)."""

    def make(pooling="avg", head=None, run=None, scores=SCORES, name="run"):
        folder = tmp_path / name
        backbone = load_backbone(str(tiny_bert))
        torch.manual_seed(0)
        trained = Head(Normalize()) if head == "unit" else None
        if head and trained is None:
            trained = projection_named(head, backbone.config.hidden_size, 0.2)
            trained(torch.randn(16, backbone.config.hidden_size))
        tokenizer = load_tokenizer(str(tiny_bert))
        if pooling == "mask":
            tokenizer = templated(tokenizer, "the {text} {mask}.")
        encoder = SentenceEncoder(backbone, pooling, trained, 64, place=mask_place(tokenizer))
        encoder.eval().save(str(folder), tokenizer)
        for file, content in (("run.json", run), ("scores.json", scores)):
            if content is not None:
                (folder / file).write_text(json.dumps(content))
        return folder

    return make
