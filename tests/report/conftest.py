"""Generated runs."""

import json

import pytest

from eval.encode import Encode
from eval.scores import rows_of, write_scores
from eval.sts import own_pairs
from eval.tasks import score_all
from models.encoder import load_encoder
from tests.folders import run_record

LOG = [
    {"step": 10, "epoch": 0.1, "contrastive": 1.5, "loss": 1.5},
    {"step": 10, "epoch": 0.1, "eval_dev_spearman": 71.5},
    {"step": 20, "epoch": 0.2, "contrastive": 0.5, "loss": 0.5},
    {"step": 20, "epoch": 0.2, "eval_dev_spearman": 70.25},
]


def write_run(folder, record=None, log=LOG):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(record or run_record()))
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    return folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory, tiny_bert, dev_file):
    """Two finished runs with scores of the graded pairs; they differ in their pooling."""
    folders = []
    for name, pooling in (("first", "avg"), ("second", "cls_before_pooler")):
        folder = write_run(tmp_path_factory.mktemp("runs") / name)
        encoder, tokenizer = load_encoder(str(tiny_bert), pooling)
        encoder.save(str(folder), tokenizer)
        results = score_all(Encode(encoder, tokenizer), [own_pairs(str(dev_file))], "")
        write_scores(folder / "scores.json", results, rows_of(results, name, name))
        folders.append(folder)
    return folders
