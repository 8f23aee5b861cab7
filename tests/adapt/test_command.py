"""`python -m adapt`: documents in; the best search out, or the model as it is."""

import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from torch import nn

import adapt.run
from adapt import __main__ as command
from adapt.searches import AS_IT_IS, BM25, Search, searches
from common.errors import BadInput
from embedder import Embedder
from eval.dev import search_set
from eval.encode import Encode
from eval.retrieval.beir import read_set
from eval.retrieval.hybrid import WEIGHT
from models.encoder import load_encoder
from models.heads import Dense, Head
from search.__main__ import main as search
from tests.eval.toys import write_beir
from tests.faults.forked import meanwhile
from tests.folders import normalise, record, same_weights

HYBRID, LAYER, ALL = Search(weight=WEIGHT), Search(power=0.25), Search(power=0.25, weight=WEIGHT)
TEXTS = ["a dog", "the small river watches a teacher"]


@pytest.fixture
def corpus(sentences, tmp_path):
    """A BEIR set of 100 documents with titles; a sentence of a document is a query."""
    texts = [" ".join(sentences[3 * i : 3 * i + 3]) for i in range(100)]
    documents = [
        {"_id": f"d{i}", "title": sentences[3 * i][:-1], "text": text}
        for i, text in enumerate(texts)
    ]
    queries = {f"q{i}": sentences[3 * i + 1] for i in range(20)}
    return write_beir(
        tmp_path / "mine", documents, queries, test=[(f"q{i}", f"d{i}", 1) for i in range(20)]
    )


@pytest.fixture
def model(tiny_bert, tmp_path):
    """A finished model: a folder of sentence-transformers that normalises its vectors."""
    encoder, tokenizer = load_encoder(str(tiny_bert), "avg")
    encoder.prompts = {"query": "find: "}
    encoder.save(str(tmp_path / "model"), tokenizer)
    normalise(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def arguments(corpus, model, tmp_path, monkeypatch):
    monkeypatch.setattr("training.result.draw_log", lambda *_: None)

    def arguments(name="out", *others, model=model, **changed):
        """The command's words; None leaves a flag out."""
        flags = {
            "text": corpus / "corpus.jsonl",
            "output": tmp_path / name,
            "labels": corpus,
            "seed": 0,
        }
        flags |= {"cache_dir": tmp_path / "cache"} | changed
        return [
            str(model),
            *(f"--{flag}={value}" for flag, value in flags.items() if value is not None),
            *others,
        ]

    return arguments


BATCH = ["--per_device_train_batch_size=16", "--max_length=32"]
TRAINED = [
    "--train",
    "--steps=4",
    "--learning_rate=1e-3",
    "--use_cpu=true",
    "--disable_tqdm=true",
    *BATCH,
]


@pytest.fixture
def best(monkeypatch):
    """Makes a search the best one by far, in what adapt believes."""

    def best(chosen):
        def ndcg(task, vectors, compared, *_):
            noise = np.random.default_rng(0).uniform(size=len(task.queries)) / 10
            return {option: noise + 0.5 * (option == chosen) for option in compared}

        monkeypatch.setattr(adapt.run, "ndcg", ndcg)

    return best


@pytest.mark.parametrize("chosen", [BM25, ALL])
def test_the_best_search_is_one_folder_for_every_reader(
    arguments, model, corpus, best, tmp_path, chosen, capsys
):
    best(chosen)
    result = command.main(arguments())
    assert result["shipped"] == str(chosen) and result["verdict"]["verdict"] == "better"
    assert result == json.loads((tmp_path / "out" / "adapt.json").read_text())
    assert (
        f"{tmp_path / 'out'}: {chosen}. On 33 pseudo-queries it is better"
        in capsys.readouterr().out
    )
    shipped, theirs = (
        Embedder(tmp_path / "out"),
        SentenceTransformer(str(tmp_path / "out"), device="cpu"),
    )
    assert shipped.recipe == (chosen.weight, "english") and theirs.prompts["query"] == "find: "
    assert np.abs(shipped.encode(TEXTS, "query") - theirs.encode_query(TEXTS)).max() < 1e-6
    assert same_weights(tmp_path / "out", model)
    assert (shipped.encode(TEXTS).shape == (2, 32)) == (chosen.power is None), (
        "a layer norm leaves 31 directions"
    )
    assert np.allclose(np.linalg.norm(shipped.encode(TEXTS), axis=1), 1)
    search(
        [
            "build",
            str(corpus / "corpus.jsonl"),
            f"--model={tmp_path / 'out'}",
            f"--output={tmp_path / 'index'}",
        ]
    )
    index = Embedder.load_index(tmp_path / "index")
    assert (index.index.lexical is None) == (chosen.weight == 1)
    expected = (
        index.hits(["a small dog"], weight=chosen.weight)
        if chosen.weight < 1
        else index.hits(["a small dog"])
    )
    assert index.hits(["a small dog"]) == expected


def test_a_model_that_is_not_beaten_is_written_as_it_is(arguments, model, best, tmp_path, capsys):
    best(AS_IT_IS)
    result = command.main(arguments())
    assert result["shipped"] == str(AS_IT_IS)
    assert "the model as it is. No other search is better" in capsys.readouterr().out
    assert same_weights(tmp_path / "out", model) and Embedder(tmp_path / "out").recipe.weight == 1
    assert (
        np.abs(Embedder(tmp_path / "out").encode(TEXTS) - Embedder(model).encode(TEXTS)).max()
        < 1e-6
    )


def test_a_part_that_is_not_better_is_left_out(arguments, monkeypatch):
    def ndcg(task, vectors, compared, *_):
        rng = np.random.default_rng(0)
        gains = {AS_IT_IS: 0.0, BM25: -0.2, HYBRID: 0.3, LAYER: 0.01, ALL: 0.31}
        return {
            option: 0.2 + gains[option] + rng.uniform(-0.2, 0.2, size=len(task.queries))
            for option in compared
        }

    monkeypatch.setattr(adapt.run, "ndcg", ndcg)
    assert command.main(arguments())["shipped"] == str(HYBRID)


def test_scores_are_those_of_the_written_folder(arguments, corpus, tmp_path):
    result = command.main(arguments())
    rows = {row["search"]: row for row in result["searches"]}
    assert [*rows] == list(map(str, searches(False, True))) and {"pseudo", "real"} <= rows[
        str(BM25)
    ].keys()
    pseudo = search_set(result["pseudo_queries"], ["dev", "test"])
    for data, side in ((search_set(corpus, ["test"]), "real"), (pseudo, "pseudo")):
        score = 100 * data.items(Encode(*load_encoder(str(tmp_path / "model"))))["value"].mean()
        assert rows[str(AS_IT_IS)][side]["result"] == pytest.approx(score, abs=1e-4)
    data = read_set(tmp_path / "mine", "test")
    shipped = Embedder(tmp_path / "out").build_index(data.corpus.texts(0, len(data.corpus)))
    hits = shipped.hits([*data.queries.values()], 10)
    gains = [
        1 / np.log2(rank + 2) * (hit.document == int(name[1:]))
        for name, row in zip(data.queries, hits, strict=True)
        for rank, hit in enumerate(row)
    ]
    score = sum(gains) / len(data.queries)
    assert rows[result["shipped"]]["real"]["result"] == pytest.approx(100 * score, abs=0.1)


def test_the_same_command_changes_nothing_and_another_one_is_refused(
    arguments, tmp_path, monkeypatch
):
    result = command.main(arguments(labels=None))
    with monkeypatch.context() as patch:
        patch.setattr(adapt.run, "ndcg", lambda *_: 1 / 0)
        assert command.main(arguments(labels=None)) == result
    assert command.main(arguments("other", labels=None))["searches"] == result["searches"]
    with pytest.raises(BadInput, match="out: exists already"):
        command.main(arguments(labels=None, seed=1))


def test_of_two_commands_at_once_one_is_whole_and_the_other_refused(arguments, monkeypatch):
    codes, ndcg = [], adapt.run.ndcg

    def slow(*given):
        monkeypatch.setattr(adapt.run, "ndcg", ndcg)
        codes.append(meanwhile(command.main, arguments(labels=None, seed=1)))
        return ndcg(*given)

    monkeypatch.setattr(adapt.run, "ndcg", slow)
    assert command.main(arguments(labels=None))["asked"]["seed"] == 0
    assert codes == [5] and command.main(arguments(labels=None))["asked"]["seed"] == 0


def test_training_adds_a_model_to_the_comparison(arguments, best, tmp_path):
    trained = Search(trained=True, power=0.25, weight=WEIGHT)
    best(trained)
    result = command.main(arguments("whole", *TRAINED))
    assert (
        len(result["searches"]) == 9 and result["shipped"] == "trained model + linear layer + BM25"
    )
    assert record(tmp_path / "whole-training")["verdict"] == result["training"]
    assert same_weights(tmp_path / "whole", tmp_path / "whole-training")


def test_a_layer_behind_other_layers_is_loaded_by_sentence_transformers(
    arguments, model, best, tmp_path
):
    encoder, tokenizer = load_encoder(str(model))
    encoder.head = Head(Dense(nn.Linear(32, 8), "Tanh"))
    encoder.save(str(tmp_path / "headed"), tokenizer)
    best(LAYER)
    command.main(arguments(model=tmp_path / "headed", labels=None))
    theirs = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert [type(module).__name__ for module in theirs] == [
        "Transformer",
        "Pooling",
        "Dense",
        "Dense",
    ]
    assert np.abs(Embedder(tmp_path / "out").encode(TEXTS) - theirs.encode(TEXTS)).max() < 1e-5
    with pytest.raises(BadInput, match=r"has a module Dense, .* leave out --train"):
        command.main(arguments("trained", *TRAINED, model=tmp_path / "headed", labels=None))


def test_a_dry_run_trains_nothing(arguments, tmp_path, capsys):
    assert command.main(arguments("out", *TRAINED, "--dry_run")) == {}
    assert "trainable" in capsys.readouterr().out and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train_file=x"], "--train_file"),
        (["--seed=-1"], "seed"),
        (["--learning_rate=1e-5"], "--learning_rate is for training"),
        (["--lables=x"], "unknown argument '--lables'"),
        (["--labels=nowhere"], "nowhere"),
    ],
)
def test_wrong_flags_are_refused(arguments, tmp_path, words, message):
    seed = None if "--seed=-1" in words else 0
    with pytest.raises(BadInput, match=message):
        command.main(arguments("out", *words, labels=None, seed=seed))
    assert not (tmp_path / "out").exists()


def test_copies_leave_nothing_to_train_on(arguments, sentences, tmp_path):
    """Tables are read too: of 120 rows, four of each document, one of each is held out."""
    texts = [" ".join(sentences[5 * i : 5 * i + 5]) for i in range(30)] * 4
    table = tmp_path / "copies.tsv"
    table.write_text("\n".join(["body", *texts]), encoding="utf-8")
    columns = "--text_column=body"
    with pytest.raises(BadInput, match="no document is left to train on; all others are near-cop"):
        command.main(arguments("out", *TRAINED, columns, labels=None, text=table))


def test_a_plain_encoder_is_trained_and_a_configuration_keeps_what_it_sets(
    arguments, tiny_bert, tmp_path
):
    config = tmp_path / "config.yaml"
    values = {
        "method": "cropping",
        "projection": "none",
        "max_steps": 9,
        "seed": 7,
        "columns": 2,
        "train_file": "x",
    }
    config.write_text(json.dumps(values | {"bf16": False}))
    command.main(
        arguments(
            "run", f"--config={config}", *TRAINED[1:], seed=None, model=tiny_bert, labels=None
        )
    )
    assert load_encoder(str(tmp_path / "run"))[0].pooling == "avg"
    expected = {"max_steps": 4, "seed": 7, "bf16": False, "columns": 1}
    assert expected.items() <= record(tmp_path / "run-training")["settings"].items()
