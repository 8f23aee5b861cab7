"""`python -m adapt`: documents in; the default out, or a search that is shown to be better."""

import json
import re

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from adapt import __main__ as command
from adapt.pseudo import pseudo_queries
from embedder import Embedder
from models.encoder import load_encoder
from search.__main__ import main as search
from search.index import Document
from tests.faults.forked import meanwhile
from tests.folders import normalise, same_weights
from tests.refusals import refused

TEXTS = ["a dog", "the small river watches a teacher"]


@pytest.fixture
def model(tiny_bert, tmp_path):
    """A finished model: a folder of sentence-transformers that normalises its vectors."""
    encoder, tokenizer = load_encoder(str(tiny_bert), "avg")
    encoder.prompts = {"query": "find: "}
    encoder.save(str(tmp_path / "model"), tokenizer)
    normalise(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def arguments(sentences, model, tmp_path):
    """The words of the command for 100 documents, which make 33 pseudo-queries."""
    documents = tmp_path / "documents.jsonl"
    lines = []
    for i in range(100):
        texts = [sentence.rstrip(".!") for sentence in sentences[3 * i : 3 * i + 3]]
        lines.append(json.dumps({"text": ". ".join(texts) + " by the old sea wall of the town."}))
    documents.write_text("\n".join(lines))

    def arguments(model=model, seed=0):
        words = [str(model), "--text", str(documents), f"--output={tmp_path / 'out'}"]
        return [*words, f"--cache_dir={tmp_path}", f"--seed={seed}"]

    return arguments


@pytest.fixture(autouse=True)
def enough(monkeypatch):
    monkeypatch.setattr(command, "LEAST", 33)


def scores(**gains):
    """Made-up scores of 300 queries by search: noise, and a gain on either half."""
    made = {}
    for name in command.COMPARED:
        rng = np.random.default_rng(len(name))
        values = rng.uniform(0.2, 0.4, size=300)
        for half in (0, 1):
            values[half::2] += gains.get(name, (0, 0))[half]
        made[name] = values
    return made


GAINS = [({}, "hybrid", "hybrid"), ({"hybrid": (0.2, 0.2)}, "bm25", "hybrid")]
GAINS += [({"dense": (0.2, other)}, "hybrid", "hybrid") for other in (0.0, -0.2)]  # not confirmed
GAINS += [({"dense": (0.2, 0.2)}, "hybrid", "dense")]
GAINS += [({"dense": (0.3, 0.2), "bm25": (0.2, 0.3)}, "hybrid", "dense")]  # one half chooses


@pytest.mark.parametrize(("gains", "default", "kept"), GAINS)
def test_one_half_of_the_queries_chooses_and_the_other_must_confirm(gains, default, kept):
    values = scores(**gains)
    found = command.choice(values, default)
    assert found["search"] == kept
    best = found["searches"][found["best"]]
    assert best["examples"] == 150
    assert best["result"] == pytest.approx(100 * values[found["best"]][1::2].mean())


def test_with_few_documents_the_default_stays(arguments, model, tmp_path, monkeypatch, capsys):
    """On 74 short pages 24 queries once chose BM25, which finds no page by other words."""
    monkeypatch.setattr(command, "ndcg", lambda *_: 1 / 0)
    monkeypatch.setattr(command, "LEAST", 34)
    result = command.main(arguments())
    assert result["search"] == "hybrid" and len(result["queries"]) == 33
    said = capsys.readouterr().out
    assert "hybrid, the default. 33 of 100 documents make a pseudo-query" in said
    shipped = Embedder(tmp_path / "out")
    assert shipped.recipe == (0.5, "english") and same_weights(tmp_path / "out", model)


def test_with_an_encoder_not_made_for_search_bm25_is_the_default(arguments, tiny_bert, tmp_path):
    result = command.main(arguments(model=tiny_bert))
    assert result["default"] == "bm25" and "searches" in result
    assert load_encoder(str(tmp_path / "out"))[0].pooling == "avg"


@pytest.mark.parametrize("chosen", ["bm25", "dense"])
def test_the_best_search_is_one_folder(arguments, model, tmp_path, monkeypatch, capsys, chosen):
    monkeypatch.setattr(command, "ndcg", lambda *_: scores(**{chosen: (0.2, 0.2)}))
    result = command.main(arguments())
    assert result == json.loads((tmp_path / "out" / "adapt.json").read_text())
    assert f"{chosen}. On 150 pseudo-queries that did not choose it" in capsys.readouterr().out
    shipped = Embedder(tmp_path / "out")
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert same_weights(tmp_path / "out", model) and theirs.prompts["query"] == "find: "
    assert np.abs(shipped.encode(TEXTS, "query") - theirs.encode_query(TEXTS)).max() < 1e-6
    index = tmp_path / "index"
    documents = str(tmp_path / "documents.jsonl")
    search(["build", documents, f"--model={tmp_path / 'out'}", f"--output={index}"])
    built = Embedder.load_index(index)
    assert (built.index.lexical is None) == (chosen == "dense")
    assert built.hits(["a dog"]) == built.hits(["a dog"], weight=float(chosen == "dense"))


def test_build_encodes_only_the_documents_that_gave_a_query(arguments, tmp_path, capsys):
    queries = command.main(arguments())["queries"]
    words = ["build", str(tmp_path / "documents.jsonl"), f"--model={tmp_path / 'out'}"]
    search([*words, f"--output={tmp_path / 'index'}"])
    counts = re.search(r"in (\d+) windows \((\d+) encoded", capsys.readouterr().out)
    windows, encoded = map(int, counts.groups())
    assert len(queries) <= encoded <= windows / 2


def test_scores_are_of_what_search_finds(model, sentences):
    pairs = zip(sentences[:120:2], sentences[1:120:2], strict=True)  # each a window
    documents = [Document(str(i), "", f"{a}. {b} and then.") for i, (a, b) in enumerate(pairs)]
    queries = pseudo_queries(documents, seed=0)
    embedder = Embedder(model)
    found = command.ndcg(embedder, documents, queries, "english")
    changed = {query.document: query.answer for query in queries}
    texts = [changed.get(i, document.text) for i, document in enumerate(documents)]
    embedder.build_index(texts, lexical=True)
    for name, weight in {"bm25": 0.0, "hybrid": 0.5, "dense": 1.0}.items():
        hits = embedder.hits([query.text for query in queries], 10, weight)
        for query, row, value in zip(queries, hits, found[name], strict=True):
            places = [rank for rank, hit in enumerate(row) if hit.document == query.document]
            assert value == pytest.approx(sum(1 / np.log2(rank + 2) for rank in places))


def test_of_two_commands_at_once_one_is_whole_and_the_other_refused(arguments, monkeypatch):
    codes, queries = [], command.pseudo_queries

    def slow(*given):
        monkeypatch.setattr(command, "pseudo_queries", queries)
        codes.append(meanwhile(command.main, arguments(seed=1)))
        return queries(*given)

    monkeypatch.setattr(command, "pseudo_queries", slow)
    assert command.main(arguments())["seed"] == 0 and codes == [5]
    for seed, said in {0: "out: exists already", -1: "seed"}.items():
        refused(command.main, arguments(seed=seed), match=said)
