"""`python -m baselines` as a user types it, and the scores of what it writes."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import baselines.__main__ as command
import eval.__main__ as scoring
from baselines.words import averaged, read_words
from tests.encoders import encode_of
from tests.refusals import refused


def test_whitening_from_text_to_scores(tiny_bert, text_file, dev_file, sentences, tmp_path):
    out = tmp_path / "white"
    flags = ["--pooling=avg", f"--train_file={text_file}", "--dimensions=31", f"--output={out}"]
    command.main(["whitening", str(tiny_bert), *flags])
    vectors = encode_of(out)(sentences).astype(np.float64)
    assert vectors.shape == (300, 31)
    # The last directions are small: float32.
    assert np.abs(vectors.T @ vectors / 300 - np.eye(31)).max() < 1e-3
    facts = json.loads((out / "baseline.json").read_text())
    assert facts["texts"] == 300 and facts["dimensions"] == 31 and len(facts["train_sha256"]) == 64
    rows = scoring.main([str(out), f"--dev_file={dev_file}"])
    assert [row["task"] for row in rows if row["headline"]] == ["pairs"]

    again = tmp_path / "again"  # on a model that ends in a linear layer, without --pooling
    flags = [f"--train_file={text_file}", "--dimensions=4", f"--output={again}"]
    command.main(["whitening", str(out), *flags])
    twice = encode_of(again)(sentences)
    assert np.abs(twice.T @ twice / 300 - np.eye(4)).max() < 1e-3


@pytest.mark.parametrize("flag", ["--power=1.1", "--power=nan", "--dimensions=0"])
def test_flags_are_checked_before_the_text_is_encoded(tiny_bert, tmp_path, monkeypatch, flag):
    monkeypatch.setattr(command.infocse, "load", lambda *_: pytest.fail("was begun"))
    flags = ["--train_file=x.txt", f"--output={tmp_path / 'out'}", flag]
    said = refused(command.main, ["whitening", str(tiny_bert), *flags])
    assert flag.split("=")[0] in said


def scored(*argv):
    """The first row that a command writes."""
    output = next(word for word in argv if word.startswith("--output="))
    command.main(argv)
    return json.loads(Path(output.removeprefix("--output=")).read_text())[0]


def test_flow_from_text_to_scores(tiny_bert, text_file, dev_file, tmp_path, capsys):
    pairs, pooling = f"--dev_file={dev_file}", "--pooling=avg_first_last"
    text = [pooling, f"--train_file={text_file}", "--epochs=2", "--steps=2"]
    flags = ["flow", str(tiny_bert), *text, pairs]
    flowed = scored(*flags, f"--output={tmp_path / 'a.json'}")
    assert capsys.readouterr().out.startswith("| model |")
    assert flowed["nll_after"] < flowed["nll_before"] and len(flowed["train_sha256"]) == 64
    assert scored(*flags, f"--output={tmp_path / 'b.json'}") == flowed
    [plain, *_] = scoring.main([str(tiny_bert), pooling, pairs])
    assert flowed["value"] != pytest.approx(plain["value"])
    assert (flowed["task"], flowed["n"]) == (plain["task"], plain["n"])


def test_word_vectors_from_file_to_scores(tmp_path):
    (tmp_path / "vectors.txt").write_text("dog 1 2\ncat 2 1\nhouse -1 0.5\n")
    pairs = tmp_path / "pairs.tsv"
    lines = "sentence1\tsentence2\tscore", "A dog.\tthe Cat\t5", "house zebra\tdog yak\t2"
    pairs.write_text("\n".join([*lines, "cat\thouse\t1"]))
    flags = [f"--dev_file={pairs}", f"--output={tmp_path / 'scores.json'}"]
    row = scored("word_vectors", str(tmp_path / "vectors.txt"), *flags)
    assert row["value"] == pytest.approx(100)  # cosines 0.8, 0 and -0.6
    assert row["words"] == 3 and len(row["sha256"]) == 64


def test_missing_test_data_is_known_before_the_fit(tiny_bert, text_file, tmp_path, monkeypatch):
    monkeypatch.setattr(command.infocse, "load", lambda *_: pytest.fail("was begun"))
    flags = [f"--train_file={text_file}", f"--data_dir={tmp_path}"]
    assert "STS12" in refused(command.main, ["flow", str(tiny_bert), "--pooling=avg", *flags])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("header", ["", "3 2\n"])
def test_a_sentence_has_the_mean_of_its_known_words(pack, header, tmp_path):
    path = tmp_path / ("vectors.gz" if pack is gzip.compress else "vectors")
    path.write_bytes(pack(f"{header}the 9 9\ndog 1 2\nParis 3 0\n".encode()))
    encode = averaged(read_words(path))
    vectors = encode(["The dog!", "dog, Paris zebra", "PARIS", "zebra", "", "dog"])
    expected = [[1, 2], [2, 1], [0, 0], [0, 0], [0, 0], [1, 2]]
    assert vectors.dtype == np.float32 and np.allclose(vectors, expected)
    assert not encode(["zebra", ""]).any()


@pytest.mark.parametrize("content", ["", "dog one two\n", b"dog \xff 1\n"])
def test_another_kind_of_file_is_refused(content, tmp_path):
    path = tmp_path / "vectors.txt"
    assert "no such file" in refused(read_words, path)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert refused(read_words, path).startswith(f"{path}: not lines of a word")
