"""A hub's cache with tiny models under the real names and small sets of the real sizes."""

from __future__ import annotations

import hashlib
import random
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub.hf_api import ModelInfo
from huggingface_hub.utils import filter_repo_objects

import reproduce
from eval.published.__main__ import checkpoints
from eval.sts import STS_TEST
from tests.data.conftest import packed
from tests.eval.toys import sts_files

COMMIT = "c" * 40


def digest(content):
    return hashlib.sha256(content).hexdigest()


def graded_pairs(sentences: list[str]):
    """Pairs of a few sentences with random scores, for `tests.eval.toys.sts_files`."""
    draw = random.Random(0)

    def pairs(_, count):
        few = sentences[:50]
        return [(*draw.sample(few, 2), f"{draw.randint(0, 50) / 10}") for _ in range(count)]

    return pairs


def asked_for(name, allow_patterns):
    """The folder of a repository in the cache, without the files that nobody asks for."""
    folder = Path(huggingface_hub.snapshot_download(name))
    files = [path.name for path in folder.iterdir()]
    for file in {*files} - {*filter_repo_objects(files, allow_patterns=allow_patterns)}:
        (folder / file).unlink()
    return str(folder)


@pytest.fixture
def hub(tiny_bert, sentences, tmp_path, monkeypatch):
    """The folder of a repository that `reproduce.py` asks for; the working folder is a new one."""

    def folder(name, kind="models"):
        return cache / f"{kind}--{name.replace('/', '--')}" / "snapshots" / COMMIT

    def model_info(name, files_metadata, timeout):
        siblings = []
        for path in folder(name).iterdir():
            lfs = {"sha256": digest(path.read_bytes()), "size": 1, "pointerSize": 1}
            siblings.append({"rfilename": path.name, "size": 1, "lfs": lfs})
        return ModelInfo(id=name, siblings=siblings)

    cache = tmp_path / "cache"
    sizes = {task.name: task.pairs for task in STS_TEST}
    sets = {
        f"senteval/downstream/{name}": text.encode()
        for name, text in sts_files(graded_pairs(sentences), sizes).items()
    }
    data = folder("princeton-nlp/datasets-for-simcse", "datasets")
    data.mkdir(parents=True)
    (data / "wiki1m_for_simcse.txt").write_text("".join(f"{line}\n" for line in sentences))
    (data / "senteval.tar").write_bytes(packed(sets))
    authors = [checkpoints()[name]["hub"] for name in reproduce.AUTHORS]
    for name in [*authors, "bert-base-uncased", reproduce.CONDENSER]:
        shutil.copytree(tiny_bert, folder(name))
    for repository in cache.iterdir():
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(COMMIT)
    sums = tmp_path / "SHA256SUMS"
    sums.write_text("".join(f"{digest(content)}  {name}\n" for name, content in sets.items()))
    monkeypatch.setattr("data.prepare.SUMS", sums)
    monkeypatch.setattr("data.prepare.WIKI_LINES", len(sentences))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    api = SimpleNamespace(model_info=model_info)
    monkeypatch.setattr(reproduce, "HfApi", lambda endpoint: api)
    monkeypatch.setattr(reproduce, "snapshot_download", asked_for)
    full = replace(reproduce.SCALES["full"], steps=12, size=(2, 32, 2), examples=len(sentences))
    monkeypatch.setitem(reproduce.SCALES, "full", full)
    shutil.copytree(Path(reproduce.__file__).parent / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    return folder
