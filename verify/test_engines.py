"""The code of docs/engines.md gives our hits; needs requirements-extra.txt."""

import re
from pathlib import Path

import numpy as np
import pytest

from common.files import ROOT
from eval.retrieval.beir import read_set
from eval.retrieval.hybrid import fused
from examples.grammar import generate
from infocse import Embedder
from search.__main__ import main

for package in ("duckdb", "faiss", "lancedb", "polars"):
    pytest.importorskip(package, reason="requirements-extra.txt has it")

PAGE = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def built(minilm, tmp_path, monkeypatch):
    """An index of a file, exported to where the page reads it."""
    monkeypatch.chdir(tmp_path)

    def build(file):
        flags = ["--output=runs/index", "--cache_dir=cache", "--bf16=false", "--dtype=float32"]
        main(["build", str(file), f"--model={minilm}", *flags])
        main(["export", "runs/index", "--output=runs/parquet"])
        return Embedder.load_index("runs/index")

    return build


def test_every_engine_finds_what_the_index_finds(built, tmp_path):
    texts = generate(0, 400, 10)["sentences"]
    (tmp_path / "texts.txt").write_text("\n".join(dict.fromkeys(texts)))
    index = built("texts.txt")
    first, *engines, hybrid = BLOCKS
    names: dict = {}
    exec(first.replace("how to restart the server", "a teacher watches the river"), names)
    expected = hits(index, names["question"], 1.0)
    for block in engines:
        exec(block, names)
        assert names["found"] == expected, block
    exec(hybrid, names)
    shared = {*names["found"]} & {*hits(index, names["question"], names["how"]["weight"])}
    assert len(shared) >= 8, "LanceDB's BM25 is another one"


def test_the_hybrid_of_lancedb_agrees_with_ours_on_med(built, data_dir):
    folder = Path(data_dir).absolute() / "beir" / "med"
    index = built(folder / "corpus.jsonl")
    first, *_, lance, hybrid = BLOCKS
    names: dict = {}
    exec(first, names)
    exec(lance, names)
    shared: dict = {"hybrid, first ten": [], "hybrid, first": [], "BM25, first ten": []}
    for question in read_set(folder, "test").queries.values():
        names |= {"question": question, "query": index.encode(question, "query")}
        names["query"] /= np.linalg.norm(names["query"])
        exec(hybrid, names)
        weight = names["how"]["weight"]
        theirs = best(names["both"], fused(names["cosines"], names["bm25"], weight))
        ours = hits(index, question, weight)
        shared["hybrid, first ten"].append(len({*theirs} & {*ours}) / 10)
        shared["hybrid, first"].append(theirs[0] == ours[0])
        words = {*best(names["both"], names["bm25"])} & {*hits(index, question, 0.0)}
        shared["BM25, first ten"].append(len(words) / 10)
    for name, shares in shared.items():
        print(f"{name}: {np.mean(shares):.3f} of {len(shares)} queries")  # noqa: T201
        assert np.mean(shares) >= 0.95


def best(windows, scores):
    """The ten documents whose windows have the highest scores."""
    order = np.argsort(-scores, kind="stable")
    return [*dict.fromkeys(windows["id"].take(order).to_pylist())][:10]


def hits(index, question, weight):
    return [
        index.index.document(hit.document).id
        for hit in index.hits([question], 10, weight=weight)[0]
    ]
