"""The code of docs/engines.md gives our hits; needs requirements-extra.txt."""

import re

import pytest

from common.files import ROOT
from examples.grammar import generate
from infocse import Embedder
from search.__main__ import main

for package in ("duckdb", "faiss", "lancedb", "polars"):
    pytest.importorskip(package, reason="requirements-extra.txt has it")

PAGE = (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_every_engine_finds_what_the_index_finds(minilm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = generate(0, 400, 10)["sentences"]
    (tmp_path / "texts.txt").write_text("\n".join(dict.fromkeys(texts)))
    flags = ["--output=runs/index", "--cache_dir=cache", "--bf16=false", "--dtype=float32"]
    main(["build", "texts.txt", f"--model={minilm}", *flags])
    main(["export", "runs/index", "--output=runs/parquet"])
    index = Embedder.load_index("runs/index")
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


def hits(index, question, weight):
    return [
        index.index.document(hit.document).id
        for hit in index.hits([question], 10, weight=weight)[0]
    ]
