"""The card's snippets, run as a reader would run them, give our vectors."""

import numpy as np
import pytest

from eval.encode import Encode
from export.__main__ import main
from export.card import Model
from export.text import rendered
from models.encoder import load_encoder
from models.pooling import POOLINGS
from tests.docs.commands import blocks

MODELS = [(name, None) for name in POOLINGS if name != "cls"]
MODELS += [("cls", "linear_tanh"), ("cls", "batch_norm"), ("avg", "unit")]


def run_snippets(card):
    """The names that each snippet of a card leaves."""
    ran = []
    for snippet in blocks(card.read_text(), "python"):
        ran.append({})
        exec(snippet, ran[-1])
    return ran


@pytest.mark.parametrize(("pooling", "head"), MODELS)
def test_every_snippet_gives_the_same_vectors(make_run, tmp_path, monkeypatch, pooling, head):
    run = make_run(pooling, head, scores=None)
    main([str(run), "--output", str(tmp_path / "a-model")])
    monkeypatch.chdir(tmp_path)
    encoder, tokenizer = load_encoder(str(run))
    ran = run_snippets(tmp_path / "a-model" / "README.md")
    assert len(ran) == 3
    for names in ran:
        expected = Encode(encoder, tokenizer)(names["sentences"])
        theirs = np.asarray(names["embeddings"])
        assert theirs.shape == expected.shape == (3, 32)
        assert np.abs(theirs - expected).max() < 2e-6 * np.abs(expected).max()
    assert np.abs(expected[0] - expected[2]).max() > 0.1 * np.abs(expected).max()
    assert np.allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-6) == (head == "unit")


def test_a_pushed_head_is_fetched_from_the_hub(make_run):
    encoder, _ = load_encoder(str(make_run("cls", "linear_tanh")))
    usage = rendered("usage.md.j2", model=Model("x", "me/x", encoder))
    assert 'hf_hub_download("me/x", "2_Dense/model.safetensors")' in usage


def test_the_snippets_put_the_default_prompt_before_texts(make_run, tmp_path, monkeypatch):
    encoder, tokenizer = load_encoder(str(make_run()))
    encoder.prompts, encoder.default_prompt = {"query": "q: ", "topic": 'it\'s "a dog": '}, "topic"
    encoder.save(str(tmp_path / "prompted"), tokenizer)
    main([str(tmp_path / "prompted"), "--output", str(tmp_path / "a-model")])
    monkeypatch.chdir(tmp_path)
    ran = run_snippets(tmp_path / "a-model" / "README.md")
    expected = Encode(encoder, tokenizer)(ran[0]["sentences"])
    for names in ran:
        assert np.asarray(names["embeddings"]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("prompts", [{}, {"query": "", "document": ""}, {"query": "query: "}])
def test_the_card_mentions_prompts_that_others_would_add(make_run, tmp_path, prompts):
    encoder, tokenizer = load_encoder(str(make_run()))
    encoder.prompts = prompts
    encoder.save(str(tmp_path / "prompted"), tokenizer)
    main([str(tmp_path / "prompted"), "--output", str(tmp_path / "a-model")])
    card = (tmp_path / "a-model" / "README.md").read_text()
    assert ("which `encode_query`" in card) is any(prompts.values())
