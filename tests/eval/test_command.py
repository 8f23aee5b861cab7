"""`python -m eval` as a user types it."""

import json

import numpy as np
import pytest

import eval.__main__ as command
from common.errors import BadInput
from tests.refusals import refused


@pytest.fixture
def data_dir(beir, sentences):
    """A retrieval set whose queries are documents, word for word."""
    beir.documents, beir.titles = {f"d{i}": text for i, text in enumerate(sentences[:20])}, {}
    beir.queries = {f"q{i}": sentences[i] for i in range(3)}
    beir.grades = {f"q{i}": {f"d{i}": 1} for i in range(3)}
    beir.write()
    return beir.root


def test_pairs_and_search_are_scored(tiny_bert, dev_file, data_dir, tmp_path, capsys, monkeypatch):
    out = tmp_path / "scores.json"
    argv = [str(tiny_bert), "--pooling=avg", "--beir=small", f"--data_dir={data_dir}"]
    rows = command.main([*argv, f"--dev_file={dev_file}", f"--output={out}"])
    assert json.loads(out.read_text()) == rows
    settings = {(row["pooling"], row["max_length"], row["bf16"]) for row in rows}
    assert settings == {("avg", 64, False)}
    headline = {row["task"]: row["value"] for row in rows if row["headline"]}
    assert set(headline) == {"small", "pairs"} and headline["small"] == 100
    printed = capsys.readouterr().out
    assert "ndcg@10\n| model" in printed and "spearman\n| model" in printed
    with np.load(tmp_path / "scores.items.npz", allow_pickle=False) as items:
        assert {"pairs|file|test|gold", "small|test|test|value"} <= set(items)
    prompted = command.main([*argv, f"--dev_file={dev_file}", "--query_prompt=q: "])
    prompts = {row["task"]: row.get("prompts") for row in prompted}
    assert prompts == {"small": {"query": "q: "}, "pairs": None}
    with monkeypatch.context() as patch:  # of the search task nothing is encoded again
        patch.setattr("eval.encode.Encode.__call__", lambda *_: pytest.fail("was encoded"))
        assert command.main(argv) == [row for row in rows if row["task"] == "small"]


def test_several_models_make_a_table_and_files(tiny_bert, dev_file, data_dir, tmp_path, capsys):
    flags = ["--pooling=avg", f"--dev_file={dev_file}", "--beir=small", f"--data_dir={data_dir}"]
    output = f"--output={tmp_path / 'scores'}"
    rows = command.main([f"one={tiny_bert}", f"two={tiny_bert}", str(tiny_bert), *flags, output])
    names = ["one", "two", tiny_bert.name]
    files = [json.loads((tmp_path / "scores" / f"{name}.json").read_text()) for name in names]
    assert rows == [row for file in files for row in file]
    assert [row["model"] for row in rows if row["task"] == "pairs" and row["headline"]] == names
    _, table = capsys.readouterr().out.split("spearman\n")
    assert [line.split("|")[1].strip() for line in table.splitlines()[2:]] == names
    with pytest.raises(BadInput, match="cannot be written in"):
        command.main([f"one={tiny_bert}", f"two={tiny_bert}", *flags, f"--output={dev_file}"])


def test_searches_make_one_table_with_paired_intervals(tiny_bert, data_dir, beir, tmp_path, capsys):
    beir.queries["q3"] = "unheardof"  # a word in no document: BM25 retrieves nothing
    beir.grades["q3"] = {"d3": 1}
    beir.write()
    flags = [str(tiny_bert), "--pooling=avg", "--beir=small", f"--data_dir={data_dir}"]
    rows = command.main([*flags, "--search", "dense", "bm25", "hybrid"])
    names = [f"{tiny_bert.name} {search}" for search in ("dense", "bm25", "hybrid")]
    headline = {row["model"]: row["value"] for row in rows if row["headline"]}
    assert list(headline) == names and headline[names[1]] == 75.0 <= headline[names[2]]
    printed = capsys.readouterr().out
    assert [line.split("|")[1].strip() for line in printed.splitlines()[2:5]] == names
    compared = [f"A: {names[a]}; B: {names[b]}" for a, b in ((1, 0), (2, 0), (2, 1))]
    assert [line for line in printed.splitlines() if line.startswith("A: ")] == compared
    alone = command.main([*flags, "--search", "hybrid", f"--output={tmp_path / 'scores.json'}"])
    together = [row["value"] for row in rows if row["model"] == names[2]]
    assert [row["value"] for row in alone] == together


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--pooling=avg", "./not-there"], "not-there"),
        ([], "does not state its pooling"),
        (["--pooling=avg", "--tasks", "BEIR", "MR", "--beir=small"], r"rt-polarity\.pos"),
        (["--pooling=avg", "--tasks", "CR", "--search", "bm25"], "--search is for BEIR's sets"),
        (["--pooling=avg", "--tasks", "CR", "--query_prompt=q: "], "--query_prompt is for BEIR's"),
    ],
)
def test_what_is_missing_is_refused_before_scoring(tiny_bert, data_dir, monkeypatch, flags, said):
    monkeypatch.setattr("models.encoder.load_encoder", lambda *_: pytest.fail("was begun"))
    refused(command.main, [str(tiny_bert), *flags, f"--data_dir={data_dir}"], match=said)


@pytest.mark.parametrize("flags", ["--split=dev", "--mode=dev", "--split=dev --mode=fasttest"])
def test_dev_is_dev_for_every_task(tiny_bert, flags):
    args = command.parser().parse_args([str(tiny_bert), "--tasks", "STS-B", "CR", *flags.split()])
    tasks = command.tasks_of(args, "dense")
    assert [task.split for task in tasks] == ["dev", "dev"]


def test_an_output_that_would_replace_others_is_refused(tiny_bert, dev_file, tmp_path, monkeypatch):
    monkeypatch.setattr("models.encoder.load_encoder", lambda *_: pytest.fail("was begun"))
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "link.json").symlink_to(dev_file)
    (tmp_path / "data.json").write_text('[{"text": "mine"}]')
    (tmp_path / "mine.items.npz").write_text("mine")
    before = dev_file.read_bytes()
    flags = [str(tiny_bert), "--pooling=avg", f"--dev_file={dev_file}"]
    for name in ("link.json", "run.json", "data.json", "mine.json"):
        with pytest.raises(BadInput, match=r"--output .*(json|mine\.items\.npz): is an input of"):
            command.main([*flags, f"--output={tmp_path / name}"])
    assert dev_file.read_bytes() == before and (tmp_path / "run.json").read_text() == "{}"


def test_unwritable_scores_are_printed(tiny_bert, dev_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "write_scores", lambda *_: 1 / 0)
    flags = ["--pooling=avg", f"--dev_file={dev_file}", f"--output={tmp_path / 'scores.json'}"]
    with pytest.raises(ZeroDivisionError):
        command.main([str(tiny_bert), *flags])
    assert "pairs" in capsys.readouterr().out
