"""Every file that is missing, cut, a pipe, or has flipped bits is refused by its name."""

import os
import random
import shutil

import numpy as np
import pytest
from transformers import TrainerState

from common.errors import ProjectError
from embedder import Embedder
from export.__main__ import main as export
from tests.folders import checkpoint
from training.run_folder import keep_if_best, last_valid, read_best

# Of each file; `make faults` flips more.
BITS = 10 * int(os.environ.get("FAULT_SEEDS", "1"))
TEXTS = ["a dog sleeps", "the server restarts at night", "cats"]


def harmed(folder, rng):
    """Harm a folder in every way, one at a time, and yield the name of the harmed file."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        path.unlink()
        yield path.name
        os.mkfifo(path)
        yield path.name
        path.unlink()
        path.write_bytes(content[: len(content) // 2])
        yield path.name
        for bit in rng.sample(range(8 * len(content)), min(BITS, 8 * len(content))):
            broken = bytearray(content)
            broken[bit // 8] ^= 1 << bit % 8
            path.write_bytes(broken)
            yield path.name
        path.write_bytes(content)


@pytest.fixture(scope="module")
def whole(tiny_bert, tmp_path_factory):
    """An export, an index of it, and a run with a checkpoint and a best model."""
    root = tmp_path_factory.mktemp("whole")
    export([str(tiny_bert), "--pooling=avg", f"--output={root / 'export'}"])
    model = Embedder(root / "export").build_index(TEXTS, lexical=True)
    model.save(root / "index")
    checkpoint(root / "run", 3, best_metric=0.5)
    state = TrainerState(global_step=3)
    save = lambda folder: shutil.copytree(tiny_bert, folder, dirs_exist_ok=True)  # noqa: E731
    keep_if_best(root / "run", "one", state, "dev", 0.5, save)
    return root


def vectors_of_export(root):
    return Embedder(root / "export").encode(TEXTS)


def hits_of_index(root):
    hits = Embedder.load_index(root / "index").hits(TEXTS)
    return np.array([hit for row in hits for hit in row])


def step_of_best(root):
    return read_best(root / "run", "one")["step"]


def last_checkpoint(root):
    return last_valid(root / "run", "one") == str(root / "run" / "checkpoint-3")


@pytest.mark.parametrize(
    ("folder", "read", "free"),
    [
        ("export", vectors_of_export, {"README.md", "infocse.json"}),
        ("index", hits_of_index, set()),
        ("run/best", step_of_best, set()),
        ("run/checkpoint-3", last_checkpoint, set()),
    ],
)
def test_a_damaged_file_is_refused_by_its_name(whole, tmp_path, folder, read, free):
    """Or it has no effect, as that of an export's card, or an export without its manifest."""
    shutil.copytree(whole, tmp_path / "copy")
    expected = read(whole)
    for name in harmed(tmp_path / "copy" / folder, random.Random(0)):
        try:
            assert np.array_equal(read(tmp_path / "copy"), expected) and name in free
        except ProjectError as refusal:
            assert name in str(refusal) and "\n" not in str(refusal)
