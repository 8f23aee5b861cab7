"""Files that are missing, cut, a pipe, have flipped bits or odd values are refused in a line."""

import json
import os
import random
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertForMaskedLM, TrainerState

from common.errors import ProjectError
from embedder import Embedder
from export.__main__ import main as export
from models.auxiliary import CONDENSER_FILE, HEAD_FILE, load_head, new_head
from models.heads import Dense
from models.loading import load_backbone
from models.saved_format import Described, read_modules, write_modules
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


SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 8, "vocab_size": 9, "max_position_embeddings": 8}
save_old = partial(torch.save, _use_new_zipfile_serialization=False)
WEIGHTS = [("model.safetensors", save_file), (HEAD_FILE, save_file)]
WEIGHTS += [("pytorch_model.bin", torch.save), (CONDENSER_FILE, torch.save)]
WEIGHTS += [("pytorch_model.bin", save_old), (CONDENSER_FILE, save_old)]


@pytest.fixture(scope="module")
def other():
    """A model that this project has not written."""
    return BertForMaskedLM(BertConfig(**SIZES))


def read_or_refused(read, *arguments):
    """What is read; None if it is refused in one line."""
    try:
        return read(*arguments)
    except ProjectError as refusal:
        assert "\n" not in str(refusal)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize(("name", "save"), WEIGHTS)
def test_damaged_weights_without_a_manifest_are_read_whole_or_refused(other, tmp_path, name, save):
    other.config.save_pretrained(tmp_path)
    if name in (HEAD_FILE, CONDENSER_FILE):
        head = new_head(other.base_model, 1).state_dict()
        tensors = {f"c_head.{key}": value for key, value in head.items()}
        read = partial(load_head, backbone=other.base_model, count=1, skip_from=1)
    else:
        tensors = {key: value.clone() for key, value in other.state_dict().items()}
        read = load_backbone
    save(tensors, tmp_path / name)
    for _ in harmed(tmp_path, random.Random(0)):
        if whole := read_or_refused(read, str(tmp_path)):
            assert all(value.isfinite().all() for value in whole.state_dict().values())


ODD = [None, True, 0, -1, 3, 1.5, 10**30, 10**400, float("nan"), float("inf"), "", "x", "a\nb"]
ODD += ["\ud800", "a\0b", "../x", [], [[]], [1], {}, {"a": 1}, [{}], ["x", "x"]]
OURS = {"format": 1, "pooling": "avg", "head": 1, "max_length": 32, "normalize": True}
DESCRIBED = """config.json modules.json 1_Pooling/config.json 2_Dense/config.json
    sentence_bert_config.json config_sentence_transformers.json""".split()


def altered(value):
    """Odd values instead of a JSON value, and the value without each of its parts or with odd ones
    in its place."""
    yield from ODD
    if not isinstance(value, dict | list):
        return
    for key in [*value] if isinstance(value, dict) else range(len(value)):
        for part in altered(value[key]):
            changed = value.copy()
            changed[key] = part
            yield changed
        del changed[key]
        yield changed


@pytest.mark.parametrize("entry", [{}, {"sentence_embedding": OURS}])
@pytest.mark.parametrize("name", DESCRIBED)
def test_odd_descriptions_of_a_model_are_read_or_refused(other, tmp_path, name, entry):
    """Those of sentence-transformers, alone and beside our own in config.json."""
    described = Described("avg", [Dense(torch.nn.Linear(8, 4), "Tanh")], 32)
    write_modules(tmp_path, described, other.base_model, None)
    (tmp_path / "config.json").write_text(json.dumps(entry))
    for content in altered(json.loads((tmp_path / name).read_text())):
        (tmp_path / name).write_text(json.dumps(content))
        if read := read_or_refused(read_modules, str(tmp_path)):
            assert isinstance(read.pooling, str) and (read.max_length or 0) >= 0
