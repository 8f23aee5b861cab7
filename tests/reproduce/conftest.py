"""What the hub has: tiny models under the real names and small sets of the real sizes."""

import random
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

import reproduce
from eval.published.__main__ import checkpoints
from eval.sts import STS_TEST
from tests.data.conftest import packed
from tests.eval.toys import sts_files

COMMIT = "c" * 40
DATA = "datasets/princeton-nlp/datasets-for-simcse"


def keep(cache: Path, repo: str, files: dict[str, bytes]) -> None:
    """Put files of a repository (`models/NAME` or `datasets/NAME`) where the hub's client does."""
    folder = cache / repo.replace("/", "--")
    snapshot = folder / "snapshots" / COMMIT
    for made in (folder / "refs", folder / "blobs", snapshot):
        made.mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(COMMIT)
    for name, content in files.items():
        blob = folder / "blobs" / sha256(content).hexdigest()
        blob.write_bytes(content)
        (snapshot / name).unlink(missing_ok=True)
        (snapshot / name).symlink_to(blob)


@pytest.fixture
def hub(tiny_bert, sentences, tmp_path, monkeypatch):
    """The cache of the hub's client with all that `reproduce.py` fetches; nothing else can be. The
    working folder is a new one."""
    cache, draw, few = tmp_path / "cache", random.Random(0), sentences[:50]

    def pairs(_, count):
        return [(*draw.sample(few, 2), f"{draw.randint(0, 50) / 10}") for _ in range(count)]

    files = sts_files(pairs, {task.name: task.pairs for task in STS_TEST})
    sets = {f"senteval/downstream/{name}": text.encode() for name, text in files.items()}
    text = "".join(f"{sentence}\n" for sentence in sentences).encode()
    keep(cache, DATA, {"senteval.tar": packed(sets), "wiki1m_for_simcse.txt": text})
    model = {path.name: path.read_bytes() for path in tiny_bert.iterdir()}
    names = [checkpoints()[name]["hub"] for name in reproduce.AUTHORS]
    for name in [*names, "bert-base-uncased", reproduce.CONDENSER]:
        keep(cache, f"models/{name}", model)
    sums = tmp_path / "SHA256SUMS"
    lines = [f"{sha256(body).hexdigest()}  {name}\n" for name, body in sets.items()]
    sums.write_text("".join(lines), encoding="ascii")
    monkeypatch.setattr("data.prepare.SUMS", sums)
    monkeypatch.setattr("data.prepare.WIKI_LINES", len(sentences))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    full = replace(reproduce.SCALES["full"], steps=12, size=(2, 32, 2), examples=len(sentences))
    monkeypatch.setitem(reproduce.SCALES, "full", full)
    monkeypatch.chdir(tmp_path)
    return cache
