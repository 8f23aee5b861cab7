"""`python -m adapt`: text in, verdict out, and a run that ships its start unless the result is better."""

import json

import numpy as np
import pytest
from datasets import Dataset
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch import nn

import adapt.run
from adapt import command
from common.errors import BadInput
from eval.dev import search_set
from eval.encode import Encode
from eval.retrieval.beir import BeirTask
from models.encoder import load_encoder
from models.heads import Dense, Head, Normalize
from tests.encoders import encode_of
from tests.eval.toys import write_beir
from tests.folders import normalise, record, same_weights


@pytest.fixture
def corpus(sentences, tmp_path):
    """A BEIR set of 100 documents whose titles are parts of their bodies; every title is a query."""
    documents = [{"_id": f"d{i}", "title": sentences[3 * i][:-1], "text": " ".join(sentences[3 * i : 3 * i + 3])}
                 for i in range(100)]  # fmt: skip
    queries = {f"q{i}": sentences[3 * i + 1] for i in range(20)}
    return write_beir(tmp_path / "mine", documents, queries, test=[(f"q{i}", f"d{i}", 1) for i in range(20)])


@pytest.fixture
def arguments(corpus, tiny_bert, tmp_path):
    def arguments(name="run", *others, **changed):
        """The command's words; None leaves a flag out."""
        flags = {"text": corpus / "corpus.jsonl", "output": tmp_path / name, "steps": 4, "labels": corpus, "seed": 0,
                 "cache_dir": tmp_path / "cache", "use_cpu": "true", "per_device_train_batch_size": 16,
                 "max_length": 32, "disable_tqdm": "true"} | changed  # fmt: skip
        return [str(tiny_bert), *(f"--{flag}={value}" for flag, value in flags.items() if value is not None), *others]

    return arguments


def test_the_start_is_shipped_where_the_result_is_not_better(arguments, tiny_bert, tmp_path, capsys):
    found = command.main(arguments("run", "--learning_rate", "1e-9"))
    assert found["verdict"] == "not told apart" and found["shipped"] == "start"
    assert found == json.loads((tmp_path / "run" / "adapt.json").read_text())
    start = load_file(tiny_bert / "model.safetensors")
    shipped = load_file(tmp_path / "run" / "model.safetensors")
    assert all(np.array_equal(start[f"bert.{name}"], weight) for name, weight in shipped.items())
    assert "the initial model was kept" in capsys.readouterr().out
    assert found["labels"]["apart"], "the real queries choose nothing"
    assert record(tmp_path / "run")["status"] == "finished"
    words = arguments("run", "--learning_rate", "1e-9", labels=None)
    assert command.main(words)["labels"] == found["labels"], "scored earlier"
    (tmp_path / "run" / "adapt.json").write_text(json.dumps(found | {"steps": 2}))
    assert "labels" not in command.main(words), "scored on another result"


def test_the_labels_judge_the_trained_model_even_if_the_start_is_kept(arguments, corpus, tmp_path):
    found = command.main(arguments("run", "--learning_rate", "1e-3", "--least_gain", "0.99"))
    assert found["shipped"] == "start" and found["start_share"] < 1
    start, _ = load_encoder(str(tmp_path / "run"))
    trained, tokenizer = load_encoder(str(tmp_path / "run" / "best"))
    models = {"start": start, "result": trained.mixed_with(start, found["start_share"])}
    labels = search_set(corpus, ["test"])
    bf16 = record(tmp_path / "run")["settings"]["bf16"]
    scores = {name: labels.score(Encode(one, tokenizer, bf16=bf16)) for name, one in models.items()}
    assert scores == pytest.approx({name: found["labels"][name] for name in models}, abs=1e-6)
    assert scores["start"] != scores["result"]


def test_the_start_is_scored_on_the_labels_once_for_all_runs(arguments, monkeypatch):
    scored, per_query = [], BeirTask.per_query

    def counted(task, encode, part, data):
        scored.append(task.name)
        return per_query(task, encode, part, data)

    monkeypatch.setattr(BeirTask, "per_query", counted)
    for name, seed, new in (("one", 0, 1), ("other", 1, 0), ("pooled", 0, 1)):
        pooling = "cls_before_pooler" if name == "pooled" else "avg"
        scored.clear()
        found = command.main(arguments(name, "--learning_rate", "1e-3", seed=seed, pooling=pooling))
        assert scored.count("mine") == new + (found["start_share"] < 1), name


def test_the_result_is_the_mixture_that_the_dev_queries_choose(arguments, tiny_bert, tmp_path):
    found = command.main(arguments("kept", "--learning_rate", "1e-3", "--keep_start", "false"))
    scores = {float(share): value for share, value in found["dev_by_start_share"].items()}
    assert set(scores) == {0.0, 0.5, 1.0} and scores[found["start_share"]] == max(scores.values())
    assert scores[0.0] == pytest.approx(record(tmp_path / "kept")["best"]["value"])
    start, best, shipped = (load_file(folder / "model.safetensors") for folder in
                            (tiny_bert, tmp_path / "kept" / "best", tmp_path / "kept"))  # fmt: skip
    share = found["start_share"]
    for name, weight in shipped.items():
        expected = share * start[f"bert.{name}"] + (1 - share) * best[name]
        np.testing.assert_allclose(weight, expected, atol=1e-6)


@pytest.mark.parametrize(("lowest", "shipped"), [(4.9, "start"), (5.1, "result")])
def test_a_result_replaces_its_start_only_with_a_gain_above_a_tenth_of_its_score(
    arguments, tiny_bert, tmp_path, monkeypatch, capsys, lowest, shipped
):
    judged = {"start": 50.0, "result": 57.0, "interval": [lowest, 9.0], "verdict": "better"}
    monkeypatch.setattr("eval.dev.verdict", lambda *_: judged)
    found = command.main(arguments("run", "--learning_rate", "1e-3", labels=None))
    assert (found["verdict"], found["shipped"]) == ("better", shipped)
    start, weights = (load_file(folder / "model.safetensors") for folder in (tiny_bert, tmp_path / "run"))
    unchanged = all(np.array_equal(start[f"bert.{name}"], weight) for name, weight in weights.items())
    assert unchanged == (shipped == "start")
    assert ("does not lie above 10% of its score" in capsys.readouterr().out) == unchanged


def test_the_same_command_resumes_and_then_changes_nothing(arguments, tmp_path, monkeypatch):
    command.main(arguments("whole"))
    with monkeypatch.context() as patch:
        patch.setattr("eval.dev.verdict", lambda *_: 1 / 0)  # the machine dies after the training
        with pytest.raises(ZeroDivisionError):
            command.main(arguments("cut"))
    found = command.main(arguments("cut"))
    assert same_weights(tmp_path / "whole", tmp_path / "cut")
    assert found | {"seconds": 0} == command.main(arguments("cut")) | {"seconds": 0}


def test_plain_documents_are_adapted_to_as_well(arguments, sentences, tmp_path):
    text = tmp_path / "documents.txt"
    text.write_text("".join(" ".join(sentences[i : i + 3]) + "\n" for i in range(0, 300, 3)), encoding="utf-8")
    found = command.main(arguments("run", text=text, steps=1, labels=None, seed=None))
    assert found["verdict"] in ("better", "worse", "not told apart")


def test_documents_that_are_json_objects_are_texts(arguments, sentences, tmp_path):
    text = tmp_path / "documents.jsonl"
    records = [json.dumps({"log": " ".join(sentences[i : i + 3])}) for i in range(0, 300, 3)]
    text.write_text("".join(json.dumps({"text": record}) + "\n" for record in records), encoding="utf-8")
    command.main(arguments("run", text=text, steps=1, labels=None, seed=None))
    [prepared] = (tmp_path / "cache").glob("adapt-*")
    lines = (prepared / "documents.jsonl").read_text(encoding="utf-8").splitlines()
    assert set() < {json.loads(line)["text"] for line in lines} < {*records}


def test_documents_that_change_while_they_are_read_are_not_cached(sentences, tmp_path, monkeypatch):
    text = tmp_path / "documents.txt"
    text.write_text("".join(f"{line}\n" for line in sentences[:300]), encoding="utf-8")
    read = adapt.run.read_documents

    def edited(*args):
        text.write_text("".join(f"{line}\n" for line in sentences[:200]), encoding="utf-8")
        return read(*args)

    monkeypatch.setattr(adapt.run, "read_documents", edited)
    with pytest.raises(BadInput, match="changed while it was read"):
        adapt.run.prepare([text], 0, str(tmp_path / "cache"), None, None)
    assert not list((tmp_path / "cache").glob("adapt-*"))


def test_titles_of_a_dataset_are_titles(arguments, tiny_bert, tmp_path, monkeypatch):
    flags = dict(word[2:].split("=", 1) for word in arguments(text=None, output=None)[1:])
    rows = [
        (f"title {number}", f"the body of document {number} has a few more words than that") for number in range(120)
    ]
    titles, texts = zip(*rows, ("", None), (None, ""), strict=True)
    command.adapt(Dataset.from_dict({"title": titles, "body": texts}), tiny_bert, tmp_path / "run",
                  text_column="body", dry_run=True, **flags)  # fmt: skip
    [prepared] = (tmp_path / "cache").glob("adapt-*")
    lines = (prepared / "titled.jsonl").read_text().splitlines()
    assert set() < {tuple(json.loads(line).values()) for line in lines} < {*rows}
    with pytest.raises(BadInput, match=r"no column 'headline' .* among title, text"):
        command.adapt(Dataset.from_dict({"title": ["a"], "text": ["b"]}), tiny_bert, tmp_path / "run",
                      title_column="headline", **flags)  # fmt: skip
    with pytest.raises(BadInput, match=r"no column 'text' .* among title, body"):
        command.adapt(Dataset.from_dict({"title": ["a"], "body": ["b"]}), tiny_bert, tmp_path / "run", **flags)
    with pytest.raises(BadInput, match="documents of several parts: give each as one text"):
        command.adapt(rows, tiny_bert, tmp_path / "run", dry_run=True, **flags)


def test_a_share_of_titles_needs_titles(arguments, sentences, tmp_path):
    lines = [" ".join(sentences[3 * i : 3 * i + 3]) for i in range(100)]
    (tmp_path / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(BadInput, match="--title_share: most documents have no title"):
        command.main(arguments("run", "--title_share=0.3", text=tmp_path / "lines.txt", labels=None))


@pytest.fixture
def start(tiny_bert, tmp_path):
    """A folder of sentence-transformers that normalises its vectors."""
    encoder, tokenizer = load_encoder(str(tiny_bert), "avg")
    encoder.save(str(tmp_path / "start"), tokenizer)
    normalise(tmp_path / "start")
    return tmp_path / "start"


def test_a_start_with_modules_of_its_own_is_shipped_file_by_file(arguments, start, tmp_path):
    (start / "best").mkdir()
    (tmp_path / "token").write_text("secret")
    (start / "vocab_extra.txt").symlink_to(tmp_path / "token")
    for name in ("words.csv", "code.py", "optimizer.pt", "best/config.json"):
        (start / name).write_text("words")
    found = command.main([str(start), *arguments("run", "--learning_rate", "1e-9")[1:]])
    assert found["shipped"] == "start"
    foreign = {"vocab_extra.txt", "words.csv", "code.py", "optimizer.pt"}
    assert not foreign & {path.name for path in (tmp_path / "run").iterdir()}
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {path.name for path in start.iterdir()} - foreign - {
        "best"
    }
    assert (tmp_path / "run" / "modules.json").read_text() == (start / "modules.json").read_text()
    assert same_weights(tmp_path / "run", start)
    encoder, tokenizer = load_encoder(str(start))
    scored = search_set(found["pseudo_queries"], ["test"]).score(Encode(encoder, tokenizer))
    assert isinstance(encoder.head[0], Normalize) and found["start"] == pytest.approx(scored)


def test_a_start_with_a_link_that_leaves_it_is_saved_and_not_copied(arguments, start, tmp_path):
    (tmp_path / "token").write_text("secret")
    (start / "vocab.txt").symlink_to(tmp_path / "token")  # a name that a tokenizer may have
    command.main([str(start), *arguments("run", "--learning_rate", "1e-9")[1:]])
    assert not (tmp_path / "run" / "vocab.txt").exists() and same_weights(tmp_path / "run", start)


def test_a_result_normalises_like_its_start(arguments, start, tmp_path, caplog):
    words = [*arguments("run", "--keep_start=false")[1:], "--start_shares=0.5"]
    found = command.main([str(start), *words])
    assert found["shipped"] == "result" and not same_weights(tmp_path / "run", start)
    encoder, tokenizer = load_encoder(str(tmp_path / "run"))
    texts = ["a dog", "the small river watches a teacher"]
    vectors = Encode(encoder, tokenizer)(texts)
    theirs = SentenceTransformer(str(tmp_path / "run"), device="cpu").encode(texts)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1) and np.abs(vectors - theirs).max() < 1e-6
    assert "training uses only its backbone" not in caplog.text


def test_a_start_keeps_prompts_and_normalisation_but_no_head_that_was_not_judged(arguments, start, tmp_path):
    encoder, tokenizer = load_encoder(str(start))
    encoder.head, encoder.prompts = Head(Dense(nn.Linear(32, 8), "Identity"), Normalize()), {"query": "find: "}
    encoder.save(str(tmp_path / "headed"), tokenizer)
    for name, *flags in (("kept",), ("mixed", "--keep_start=false", "--start_shares=0.5")):
        found = command.main(
            [str(tmp_path / "headed"), *arguments(name, "--pooling=avg", "--learning_rate=1e-9", *flags)[1:]]
        )
        shipped = SentenceTransformer(str(tmp_path / name), device="cpu")
        assert [type(module).__name__ for module in shipped] == ["Transformer", "Pooling", "Normalize"]
        assert shipped.prompts["query"] == "find: " and shipped.encode("a dog").shape == (32,)
        judged = search_set(found["pseudo_queries"], ["test"]).score(encode_of(tmp_path / name))
        assert found["start"] == pytest.approx(judged, abs=0.05), "what was judged"


def test_a_start_that_is_pooled_in_another_way_is_shipped_as_it_was_judged(arguments, start, tmp_path):
    found = command.main([str(start), *arguments("run", "--learning_rate", "1e-9", "--pooling", "avg_top2")[1:]])
    assert found["shipped"] == "start" and same_weights(tmp_path / "run", start)
    assert load_encoder(str(tmp_path / "run"))[0].pooling == "avg_top2"


def test_a_dry_run_trains_nothing(arguments, tmp_path, capsys):
    assert command.main(arguments("run", "--dry_run")) == {}
    assert "min of training" in capsys.readouterr().out and not (tmp_path / "run").exists()
    command.main(arguments("run"))
    assert command.main(arguments("run", "--dry_run")) == {}, "nor does it tell what an earlier run found"


@pytest.mark.parametrize(
    "flag", ["--train_file=x", "--output_dir=x", "--dev=none", "--seed=-1", "--seed=4294967296", "--num_train_epochs=3"]
)
def test_what_adapt_decides_itself_is_refused(arguments, flag):
    with pytest.raises(BadInput, match=flag.split("=")[0]):
        command.main(arguments("run", flag, seed=None))


def test_the_model_comes_before_the_flags_of_the_training(arguments):
    with pytest.raises(BadInput, match="--learning_rate 1e-5: MODEL comes first"):
        command.main(["--learning-rate", "1e-5", *arguments()])


def test_a_configuration_of_another_command_is_overridden_or_refused(arguments, tmp_path):
    config = tmp_path / "config.yaml"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text("damaged")
    config.write_text("method: spans\nprojection: none\ndev: none\ncolumns: 2\ntrain_file: x\n"
                      f"model_name_or_path: ./nowhere\noutput_dir: {tmp_path / 'other'}\n")  # fmt: skip
    assert command.main(arguments("run", f"--config={config}", "--dry_run")) == {}
    config.write_text("method: spans\ndev_file: pairs.tsv\n")
    with pytest.raises(BadInput, match=r"config\.yaml: 'dev_file' excludes what adapt sets itself"):
        command.main(arguments("run", f"--config={config}"))


def test_a_configuration_keeps_what_it_sets(arguments, tiny_bert, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("method: spans\nprojection: none\npooling: cls_before_pooler\nmax_steps: 9\nseed: 7\n"
                      "keep_start: false\nstart_shares: [0.25, 0.75]\n")  # fmt: skip
    command.main(arguments("run", f"--config={config}", seed=None))
    expected = {
        "pooling": "cls_before_pooler",
        "max_steps": 4,
        "seed": 7,
        "keep_start": False,
        "start_shares": [0.25, 0.75],
        "least_gain": 0.1,  # of configs/adapt.yaml
    }
    assert expected.items() <= record(tmp_path / "run")["settings"].items()
    assert json.loads((tmp_path / "run" / "adapt.json").read_text())["seed"] == 7
    with pytest.raises(BadInput, match="--steps and --max_steps mean the same"):
        command.main(arguments("run", "--max_steps=2"))
    with pytest.raises(BadInput, match="--text: given twice"):
        command.main(arguments("run", "--text", "more.txt"))


def test_labels_that_are_not_there_are_refused_before_the_training(arguments, tmp_path):
    with pytest.raises(BadInput, match="nowhere"):
        command.main(arguments("run", labels=tmp_path / "nowhere"))
    assert not (tmp_path / "run").exists()


def test_flags_of_the_training_are_checked_by_it(arguments):
    with pytest.raises(BadInput, match=r"unknown argument '--lables'; did you mean '--labels'\?"):
        command.main(arguments("run", "--lables", "x"))
    with pytest.raises(BadInput, match="unknown argument '--learning_rat"):
        command.main(arguments("run", "--learning_rat", "1"))
