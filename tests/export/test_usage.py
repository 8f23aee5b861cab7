"""The card's snippets, run as a reader would run them, give our vectors."""

import re

import numpy as np
import pytest

from baselines.__main__ import main as baseline
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


@pytest.mark.parametrize("kind", ["flow", "word_vectors"])
def test_what_no_other_library_computes_is_shown_in_the_repository_s_terms_alone(kind, tiny_bert, text_file, tmp_path,
                                                                                 monkeypatch):  # fmt: skip
    (tmp_path / "words.txt").write_text("child 1 2\ngirl 2 1\nstocks -1 0.5\n")
    flow = [str(tiny_bert), "--pooling=avg", f"--train_file={text_file}", "--epochs=1", "--steps=1"]
    baseline([kind, *(flow if kind == "flow" else [str(tmp_path / "words.txt")]), f"--output={tmp_path / 'made'}"])
    main([str(tmp_path / "made"), "--output", str(tmp_path / "a-model")])
    card = (tmp_path / "a-model" / "README.md").read_text()
    part = "the flow" if kind == "flow" else "the splitting"
    assert f"Neither sentence-transformers nor transformers has {part}" in card
    assert "library_name" not in card and "- transformers" not in card.split("---")[1]
    [snippet] = re.findall(r"```python\n(.*?)\n```", card, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(snippet, "snippet", "exec"), names)
    encoder, tokenizer = load_encoder(str(tmp_path / "made"))
    expected = Encode(encoder, tokenizer, encoder.max_length)(names["sentences"])
    assert np.array_equal(names["embeddings"], expected) and np.abs(expected).max() > 0.1


def test_a_pushed_head_is_fetched_from_the_hub(make_run):
    encoder, _ = load_encoder(str(make_run("cls", "linear_tanh")))
    assert 'hf_hub_download("me/x", "2_Dense/model.safetensors")' in Model("x", "me/x", encoder).usage()
