"""`python -m eval` as a user types it."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

import eval.__main__ as command
from common.errors import BadInput
from common.flags import check_output
from eval.encode import Encode
from models.encoder import load_encoder


@pytest.fixture
def beir(tmp_path, sentences):
    folder = tmp_path / "data" / "beir" / "small"
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(sentences[:20])]
    queries = [{"_id": f"q{i}", "text": sentences[i]} for i in range(3)]
    for name, rows in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(
        f"q{i}\td{i}\t1\n" for i in range(3)))  # fmt: skip
    return tmp_path / "data"


def test_own_pairs_and_a_retrieval_set_are_scored_together(tiny_bert, dev_file, beir, tmp_path, capsys):
    out = tmp_path / "scores.json"
    argv = [str(tiny_bert), "--pooling=avg", f"--dev_file={dev_file}", "--tasks", "beir", "--beir", "small",
            f"--data_dir={beir}", f"--embeddings={tmp_path / 'vectors'}", f"--output={out}"]  # fmt: skip
    rows = command.main(argv)
    assert json.loads(out.read_text()) == rows
    headline = {row["task"]: row["value"] for row in rows if row["headline"]}
    assert headline["small"] == 100.0  # every query is a document, word for word
    assert set(headline) == {"small", "pairs"}
    printed = capsys.readouterr().out
    assert "ndcg@10\n| model" in printed and "spearman\n| model" in printed
    assert list((tmp_path / "vectors" / "small").glob("shard-*.npy"))
    with np.load(tmp_path / "scores.items.npz", allow_pickle=False) as items:
        assert {"pairs|file|test|gold", "small|test|test|value"} <= set(items)
    assert command.main([*argv, "--details"]) == rows  # from the shards that are there
    assert "recall@100" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--beir", "small"], "--beir and --embeddings are for --tasks beir"),
        (["--tasks", "beir"], "--tasks beir needs --beir NAME"),
        (["--tasks", "beir", "--beir", "../x"], "is not below DATA_DIR/beir"),
        (["--tasks", "retrieval", "--split", "dev"], "--tasks retrieval needs --split test"),
        (["--tasks", "beir", "--beir", "nowhere"], "corpus.jsonl"),
    ],
)
def test_bad_flags_are_refused(tiny_bert, tmp_path, flags, said):
    with pytest.raises(BadInput, match=said):
        command.main([str(tiny_bert), "--pooling=avg", f"--data_dir={tmp_path}", *flags])


def test_all_data_is_looked_for_before_any_of_it_is_scored(tiny_bert, beir, monkeypatch):
    monkeypatch.setattr(command, "load_encoder", lambda *_: pytest.fail("was begun"))
    argv = [str(tiny_bert), "--pooling=avg", "--tasks", "beir", "MR", "--beir=small", f"--data_dir={beir}"]
    with pytest.raises(BadInput, match=r"rt-polarity\.pos"):
        command.main(argv)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    check_output(str(tmp_path / "pipe"), [], b"[")


def test_an_output_that_would_replace_something_else_is_refused_and_kept(tiny_bert, dev_file, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "load_encoder", lambda *_: pytest.fail("was begun"))
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "link.json").symlink_to(dev_file)
    (tmp_path / "secret.json").write_text("[]")
    opened = Path.open

    def guarded(path, *args, **named):
        if path.stem == "secret":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *args, **named)

    monkeypatch.setattr(Path, "open", guarded)
    before = dev_file.read_bytes()
    refused = {
        dev_file: "is read by this command",
        tmp_path / "link.json": "is read by this command",
        tmp_path / "secret.json": "cannot be read",
        tmp_path / "run.json": "holds something else",
        tmp_path: "is a folder",
    }
    for output, said in refused.items():
        with pytest.raises(BadInput, match=f"--output .*{said}"):
            command.main([str(tiny_bert), "--pooling=avg", f"--dev_file={dev_file}", f"--output={output}"])
    assert dev_file.read_bytes() == before and (tmp_path / "run.json").read_text() == "{}"


def test_the_identity_of_an_encoder_is_that_of_its_vectors(tiny_bert, tiny_roberta):
    def identity(folder, pooling="avg", bf16=False, change=False, use=False):
        encoder, tokenizer = load_encoder(str(folder), pooling)
        if change:
            next(encoder.parameters()).data += 1
        encode = Encode(encoder, tokenizer, 32, bf16)
        if use:
            encode(["some words", "others"])
        return encode.identity

    same = identity(tiny_bert)
    assert identity(tiny_bert, use=True) == same
    others = {identity(tiny_bert, "cls_before_pooler"), identity(tiny_bert, bf16=True), identity(tiny_roberta),
              identity(tiny_bert, change=True)}  # fmt: skip
    assert len(others) == 4 and same not in others
