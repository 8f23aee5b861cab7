"""The card's snippets, run as a reader would run them, give our vectors."""

import re

import numpy as np
import pytest

from eval.encode import Encode
from export.__main__ import main
from export.model import Model
from models.encoder import load_encoder
from models.pooling import POOLINGS

KINDS = [(name, None) for name in POOLINGS if name != "cls"] + [("cls", "linear_tanh"), ("cls", "batch_norm")]


@pytest.mark.parametrize(("pooling", "head"), KINDS)
def test_every_snippet_gives_the_same_vectors(make_run, tmp_path, monkeypatch, pooling, head):
    run = make_run(pooling, head, scores=None)
    main([str(run), "--output", str(tmp_path / "a-model")])
    snippets = re.findall(r"```python\n(.*?)\n```", (tmp_path / "a-model" / "README.md").read_text(), re.DOTALL)
    assert len(snippets) == (3 if POOLINGS[pooling].module else 2)
    monkeypatch.chdir(tmp_path)
    encoder, tokenizer = load_encoder(str(run))
    for snippet in snippets:
        names = {}
        exec(compile(snippet, "snippet", "exec"), names)
        expected = Encode(encoder, tokenizer, encoder.max_length)(names["sentences"])
        found = np.asarray(names["embeddings"])
        assert found.shape == expected.shape == (3, 32)
        assert np.abs(found - expected).max() < 2e-6 * np.abs(expected).max(), snippet
    assert np.abs(expected[0] - expected[2]).max() > 0.1 * np.abs(expected).max()


def test_a_pushed_head_is_fetched_from_the_hub(make_run):
    encoder, _ = load_encoder(str(make_run("cls", "linear_tanh")))
    assert 'hf_hub_download("me/x", "2_Dense/model.safetensors")' in Model("x", "me/x", encoder).usage()
