"""Command lines of both scripts on the tiny models."""

from dataclasses import fields

import pytest

from data.text import NLI_HEADER, NLI_LABELS
from models.auxiliary import load_masked_lm, new_head
from models.families import backbone_of
from models.loading import load_tokenizer
from models.masked_lm import AuxiliaryMaskedLM
from training.registry import load_method, method_names

SMALL = {  # flags of the methods that have them, for the tiny models
    "aux_weight": 0.1,
    "skip_from": 2,
    "rtd_weight": 0.1,
    "queue_size": 20,
    "momentum": 0.9,
    "features": "code",
}


@pytest.fixture(scope="session")
def stage_one_folder(tiny_bert, tmp_path_factory):
    """The tiny BERT with an auxiliary head, as stage 1 leaves it."""
    import torch

    folder = tmp_path_factory.mktemp("stage-one")
    torch.manual_seed(0)
    lm = load_masked_lm(str(tiny_bert))
    AuxiliaryMaskedLM(lm, new_head(backbone_of(lm), 2), 2).save(str(folder), load_tokenizer(str(tiny_bert)))
    return folder


@pytest.fixture
def nli_file(sentences, tmp_path):
    """60 labelled pairs."""
    rows = [f"{sentences[i]}\t{sentences[i + 60]}\t{NLI_LABELS[i % 3]}" for i in range(60)]
    path = tmp_path / "nli.tsv"
    path.write_text("\n".join(["\t".join(NLI_HEADER), *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def unsup(stage_one_folder, text_file, nli_file, dev_file, tmp_path):
    """Arguments of a short run of run_unsup.py or run_sup.py; keyword arguments are further flags."""

    def arguments(output="run", method="infocse", **flags):
        values = {
            "method": method,
            "model_name_or_path": stage_one_folder,
            "train_file": text_file,
            "dev_file": dev_file,
            "test_tasks": "none",
            "cache_dir": tmp_path / "cache",
            "output_dir": tmp_path / output,
            "max_steps": 6,
            "eval_steps": 2,
            "save_steps": 3,
            "logging_steps": 1,
            "per_device_train_batch_size": 8,
            "learning_rate": "1e-3",
            "projection": "batch_norm",
            "use_cpu": "true",
            "disable_tqdm": "true",
        }
        known = {field.name for field in fields(load_method(method).arguments)} if method in method_names() else {}
        small = SMALL | {"generator": stage_one_folder}
        values |= {name: value for name, value in small.items() if name in known}
        if method in method_names(labels=True):
            values |= {"train_file": nli_file, "view_1": "adversarial"}
        if method in method_names() and not load_method(method).takes_projection:
            values |= {"projection": "none"}
        if flags.get("dev") == "none":
            del values["dev_file"]
        return [f"--{name}={value}" for name, value in (values | flags).items()]

    return arguments


@pytest.fixture
def aux(tiny_bert, text_file, tmp_path):
    """Arguments of a short run of run_pretrain_aux.py."""

    def arguments(output="aux", **flags):
        values = {
            "model_name_or_path": tiny_bert,
            "train_file": text_file,
            "cache_dir": tmp_path / "cache",
            "output_dir": tmp_path / output,
            "skip_from": 2,
            "max_length": 24,
            "max_steps": 6,
            "eval_steps": 3,
            "save_steps": 3,
            "logging_steps": 1,
            "per_device_train_batch_size": 4,
            "learning_rate": "1e-3",
            "use_cpu": "true",
            "disable_tqdm": "true",
        }
        return [f"--{name}={value}" for name, value in (values | flags).items()]

    return arguments
