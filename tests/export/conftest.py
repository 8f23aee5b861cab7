"""A run folder to export."""

import json

import pytest
import torch

from data.template import mask_place, templated
from eval.scores import row
from models.encoder import SentenceEncoder
from models.heads import Head, Normalize, projection_named
from models.loading import load_backbone, load_tokenizer

SCORES = [
    row("STS12", "test", "spearman", "all", 3108, 62.376),
    row("STS12", "test", "spearman", "mean of subsets", 3108, 60.125),
    row("STS-B", "test", "spearman", "single", 1379, 70.448),
    row("Avg.", "test", "spearman", "mean of tasks", 4487, 66.415),
]
for number, score in enumerate(SCORES):
    score["headline"] = number != 1


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
