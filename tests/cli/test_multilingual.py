"""The XLM-R presets on a tiny XLM-R, whose tokenizer is sentencepiece's unigram: trained, saved, read by others."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import run_pretrain_aux
import run_unsup
from models.encoder import load_encoder
from tests.encoders import encode_of
from tests.folders import record

from .conftest import COMMON

TEXTS = ["the dog follows a river", "猫は庭で寝ています。", "Кошка спит", "a <s> and a </s>"]
TINY = COMMON | {"max_steps": 2, "eval_steps": 2, "bf16": "false", "max_length": 24}
TINY |= {"dataloader_num_workers": 0, "per_device_train_batch_size": 8}


def flags(name, **values):
    return [f"--config=configs/{name}-xlm-roberta-base.yaml", *(f"--{key}={value}" for key, value in values.items())]


@pytest.mark.parametrize("name", ["simcse", "spans", "infocse"])
def test_a_preset_trains_and_its_vectors_are_those_of_sentence_transformers(
    name, tiny_xlm_roberta, text_file, dev_file, tmp_path
):
    torch.manual_seed(0)
    start, files = tiny_xlm_roberta, {"train_file": text_file, "cache_dir": tmp_path / "cache"}
    if name == "infocse":
        start = tmp_path / "aux"
        more = {"model_name_or_path": tiny_xlm_roberta, "output_dir": start, "skip_from": 2}
        run_pretrain_aux.main(flags("aux", **more, **files, **TINY))
    own = {"infocse": {"skip_from": 2, "dev_file": dev_file}, "simcse": {"dev_file": dev_file}}.get(name, {})
    run = tmp_path / "run"
    run_unsup.main(flags(name, model_name_or_path=start, output_dir=run, test_tasks="none", **files, **TINY, **own))
    assert record(run)["status"] == "finished"
    encoder, tokenizer = load_encoder(str(run))
    assert encoder.packed and encoder.config.model_type == "xlm-roberta"
    assert tokenizer.tokenize("the dog")[0].startswith("▁")
    found = encode_of(run)(TEXTS)
    theirs = SentenceTransformer(str(run), device="cpu").encode(TEXTS, show_progress_bar=False)
    assert np.abs(found - theirs).max() < 1e-6 * np.abs(found).max()
    assert np.abs(found[0] - found[1]).max() > 1e-2
