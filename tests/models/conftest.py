"""What several tests of the models share."""

import pytest

from data.collator import Collator
from data.source import Source
from data.tokenised import load_tokenised
from models.loading import load_tokenizer


@pytest.fixture(params=["tiny_bert", "tiny_roberta"])
def folder(request):
    """Both tiny models, one after the other."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def collated(tmp_path):
    """The collator's batch of some rows of a file, tokenised for the model of a folder."""

    def made(folder, file, views, rows, length=64, columns=1, step=0, **options):
        tokenizer = load_tokenizer(folder)
        text = load_tokenised(Source((file,), columns), tokenizer, tmp_path / "cache")
        collator = Collator(text, tokenizer, views, length, 5, **options)
        return collator([(0, row, step) for row in rows])

    return made


@pytest.fixture
def short_run(text_file, tmp_path):
    """Arguments of one step of run_unsup.py, from a folder into `run`; keywords are flags."""

    def arguments(folder, **flags):
        values = {"model_name_or_path": folder, "train_file": text_file, "method": "simcse"}
        values |= {"output_dir": tmp_path / "run", "cache_dir": tmp_path / "cache"}
        values |= {"dev": "none", "test_tasks": "none", "pooling": "avg", "max_steps": 1}
        values |= {"use_cpu": True, "disable_tqdm": True, "per_device_train_batch_size": 4}
        return [f"--{name}={value}" for name, value in (values | flags).items()]

    return arguments
