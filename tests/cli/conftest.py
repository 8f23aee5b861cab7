"""Command lines of the training scripts on the tiny models, and two runs that many tests copy."""

import shutil
from contextlib import suppress
from dataclasses import fields
from functools import partial

import pytest

import run_unsup
from common.errors import BadInput
from data.text import NLI_LABELS
from models.loading import load_tokenizer
from tests.folders import rewind
from tests.methods import stage_one
from training.methods import load_method

COMMON = {"logging_steps": 1, "save_steps": 3, "max_steps": 6, "learning_rate": "1e-3"}
COMMON |= {"use_cpu": "true", "bf16": "false", "disable_tqdm": "true"}
# Flags of the methods that have them, for the tiny models.
SMALL = {"aux_weight": 0.1, "skip_from": 2, "rtd_weight": 0.1, "queue_size": 20, "momentum": 0.9}
SMALL |= {"features": "code", "teacher_pooling": "avg", "complement_pooling": "avg"}
SMALL |= {"template": 'the "{text}" {mask}.', "template_2": 'this "{text}" {mask}.'}


@pytest.fixture(scope="session")
def stage_one_folder(tiny_bert, tmp_path_factory):
    """The tiny BERT with an auxiliary head, as stage 1 leaves it."""
    folder = tmp_path_factory.mktemp("stage-one")
    stage_one(tiny_bert, dropout=0.1).save(str(folder), load_tokenizer(str(tiny_bert)))
    return folder


@pytest.fixture(scope="session")
def nli_file(sentences, tmp_path_factory):
    """60 labelled pairs."""
    rows = [f"{sentences[i]}\t{sentences[i + 60]}\t{NLI_LABELS[i % 3]}" for i in range(60)]
    path = tmp_path_factory.mktemp("nli") / "nli.tsv"
    path.write_text("\n".join(["premise\thypothesis\tlabel", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def unsup_in(stage_one_folder, text_file, nli_file, dev_file, tmp_path_factory):
    """As `unsup`, for a run below a folder that is given."""
    cache = tmp_path_factory.mktemp("cache")

    def arguments(folder, output="run", method="infocse", **flags):
        values = COMMON | {"method": method, "model_name_or_path": stage_one_folder}
        values |= {"train_file": text_file, "dev_file": dev_file, "test_tasks": "none"}
        values |= {"cache_dir": cache, "output_dir": folder / output, "eval_steps": 2}
        values |= {"per_device_train_batch_size": 8, "projection": "batch_norm"}
        with suppress(BadInput):  # some tests give a name that no method has
            loaded = load_method(method)
            small = SMALL | dict.fromkeys(("generator", "teacher", "complement"), stage_one_folder)
            known = {field.name for field in fields(loaded.arguments)}
            values |= {name: value for name, value in small.items() if name in known}
            values |= {"train_file": nli_file, "view_1": "adversarial"} if loaded.labels else {}
        if flags.get("dev") == "none":
            del values["dev_file"]
        return [f"--{name}={value}" for name, value in (values | flags).items()]

    return arguments


@pytest.fixture
def unsup(unsup_in, tmp_path):
    """Arguments of a short run of run_unsup.py or run_sup.py; keywords are further flags."""
    return partial(unsup_in, tmp_path)


@pytest.fixture
def aux(tiny_bert, text_file, tmp_path):
    """Arguments of a short run of run_pretrain_aux.py."""

    def arguments(output="aux", **flags):
        values = COMMON | {"model_name_or_path": tiny_bert, "train_file": text_file}
        values |= {"cache_dir": tmp_path / "cache", "output_dir": tmp_path / output}
        values |= {"skip_from": 2, "max_length": 24, "eval_steps": 3}
        values |= {"per_device_train_batch_size": 4, **flags}
        return [f"--{name}={value}" for name, value in values.items() if value is not None]

    return arguments


@pytest.fixture(scope="session")
def infocse_run(unsup_in, tmp_path_factory):
    """A finished run: `unsup()`; do not change it."""
    folder = tmp_path_factory.mktemp("infocse")
    run_unsup.main(unsup_in(folder))
    return folder / "run"


@pytest.fixture(scope="session")
def simcse_run(unsup_in, tmp_path_factory):
    """A finished run: `unsup(method="simcse")`; do not change it."""
    folder = tmp_path_factory.mktemp("simcse")
    run_unsup.main(unsup_in(folder, method="simcse"))
    return folder / "run"


@pytest.fixture
def finished(simcse_run, tmp_path):
    """A copy of that run."""
    return shutil.copytree(simcse_run, tmp_path / "run")


@pytest.fixture(scope="session")
def unscored(unsup_in, tmp_path_factory):
    """A finished run without a dev task, which logs nothing: UNSCORED; do not change it."""
    folder = tmp_path_factory.mktemp("unscored")
    run_unsup.main(unsup_in(folder, method="simcse", dev="none", logging_steps=100))
    return folder / "run"


@pytest.fixture
def stopped(unscored, tmp_path):
    """A run that was killed after its checkpoint of step 3 of 6, with SimCSE and --dev none."""
    run = shutil.copytree(unscored, tmp_path / "run")
    rewind(run, 3)
    return run
