"""Prompts stand where sentence-transformers puts them: evaluation, search, training."""

import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import run_unsup
from data.collator import Collator
from embedder import Embedder
from eval.encode import Encode
from models.encoder import load_encoder
from tests.encoders import encode_of
from tests.folders import change_json

E5 = {"prompts": {"query": "query: ", "document": "passage: "}, "default_prompt_name": "query"}
BGE = {"prompts": {"query": "Represent this sentence for searching relevant passages: "}}
TEXTS = ["a small river", "the dog watches", ""]


@pytest.fixture
def make(request, tmp_path):
    """Writes a sentence-transformers folder with prompts."""

    def made(family, pooling, settings):
        encoder, tokenizer = load_encoder(str(request.getfixturevalue(f"tiny_{family}")), pooling)
        encoder.save(tmp_path / "start", tokenizer)
        change_json(tmp_path / "start" / "config.json", sentence_embedding=...)
        change_json(tmp_path / "start" / "config_sentence_transformers.json", **settings)
        return tmp_path / "start"

    return made


@pytest.mark.parametrize(
    ("family", "pooling", "settings"),
    [("xlm_roberta", "avg", E5), ("bert", "cls_before_pooler", BGE)],
)
def test_vectors_of_every_role_are_sentence_transformers(make, tmp_path, family, pooling, settings):
    folder = make(family, pooling, settings)
    encoder, tokenizer = load_encoder(str(folder))
    encoder.save(tmp_path / "saved", tokenizer)
    peer = SentenceTransformer(str(folder), device="cpu")
    for path in (folder, tmp_path / "saved"):
        ours = encode_of(path)
        roles = ours, ours.of("query"), ours.of("document")
        peers = peer.encode, peer.encode_query, peer.encode_document
        for mine, theirs in zip(roles, peers, strict=True):
            expected = theirs(TEXTS)
            assert np.abs(mine(TEXTS) - expected).max() < 1e-6 * np.abs(expected).max()
        documents = encode_of(path, pooling).of("document")(TEXTS)
        assert np.abs(ours.of("query")(TEXTS) - documents).max() > 1e-3
        named = SentenceTransformer(str(path), device="cpu").default_prompt_name
        assert named == settings.get("default_prompt_name")


def test_search_uses_them_and_flags_replace_them(make):
    folder = make("bert", "avg", E5)
    peer = SentenceTransformer(str(folder), device="cpu")
    ours = Embedder(folder, document_prompt="")
    [(_, cosine)] = ours.build_index(["the dog"]).search("a river", top_k=np.int64(1))
    query, document = peer.encode_query("a river"), peer.encode("the dog", prompt="")
    lengths = np.linalg.norm(query) * np.linalg.norm(document)
    assert cosine == pytest.approx(query @ document / lengths, abs=1e-6)
    assert np.abs(ours.encode("the dog", "document") - document).max() < 1e-6
    given = str(folder), None, None
    plain, other = (load_encoder(*given, {"query": text}) for text in (None, "find: "))
    assert Encode(*plain).of("document").identity == Encode(*other).of("document").identity
    assert len({Encode(*loaded).of("query").identity for loaded in (plain, other)}) == 2
    other[0].save(folder, other[1])
    prompts = SentenceTransformer(str(folder), device="cpu").prompts
    assert prompts == E5["prompts"] | {"query": "find: "}


def test_a_prompt_for_documents_that_nothing_reads_is_told(make, caplog):
    folder = str(make("bert", "avg", {"prompts": {"query": "q: ", "passage": "p: "}}))
    load_encoder(folder, prompts={"document": "p: "})
    assert not caplog.text
    load_encoder(folder)
    assert "names its prompt for documents 'passage'" in caplog.text


def test_a_template_takes_the_place_of_a_default_prompt(make, short_run, tmp_path, caplog):
    run_unsup.main(short_run(make("bert", "avg", E5), method="promptbert", pooling="mask"))
    assert "the method's template takes its place" in caplog.text
    assert load_encoder(str(tmp_path / "run"))[0].prompt_of() == ""


@pytest.mark.parametrize(
    ("method", "extra"), [("cropping", {}), ("simcse", {}), ("simcse", {"query_prompt": "find: "})]
)
def test_training_puts_them_before_texts(make, short_run, tmp_path, monkeypatch, method, extra):
    folder, seen = make("bert", "avg", E5), []
    call = Collator.__call__

    def noted(self, keys):
        seen.append(call(self, keys))
        return seen[-1]

    monkeypatch.setattr(Collator, "__call__", noted)
    run_unsup.main(short_run(folder, method=method, **extra))
    _, tokenizer = load_encoder(str(folder))
    prompts = E5["prompts"] | {name.removesuffix("_prompt"): text for name, text in extra.items()}
    names = ["query", "document" if method == "cropping" else "query"]
    for view, name in zip(seen[-1]["input_ids"], names, strict=True):
        before = tokenizer(prompts[name])["input_ids"][:-1]
        assert (view[:, : len(before)].numpy() == before).all()
    kept = json.loads((tmp_path / "run" / "config_sentence_transformers.json").read_text())
    assert (kept["prompts"], kept["default_prompt_name"]) == (prompts, "query")
