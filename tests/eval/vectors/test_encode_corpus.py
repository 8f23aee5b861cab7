"""Shards in, shards out: what comes back, what is kept after a stop, and what is refused."""

import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import BadInput
from data.lines import texts_by_line
from eval.encode_corpus.__main__ import main
from eval.vectors.job import Job, stem_of
from eval.vectors.store import VectorStore, quantised, read_vectors, stored
from eval.vectors.workers import encode_corpus
from tests.encoders import encode_of
from tests.eval.letters import Letters
from tests.refusals import refused
from tests.sources import ROOT


@pytest.fixture
def shards(tmp_path, sentences):
    """The same 60 sentences in four shards of all kinds, with an empty line and a repeated one."""
    texts = [sentences[:20], [*sentences[20:30], "", *sentences[:4]], sentences[30:45], sentences[45:60]]
    folder = tmp_path / "in"
    folder.mkdir()
    plain = ["\n".join(part) + "\n" for part in texts]
    (folder / "a.txt").write_text(plain[0], encoding="utf-8")
    (folder / "b.1.txt.gz").write_bytes(gzip.compress(plain[1].encode()))
    (folder / "c").write_text(plain[2].rstrip("\n"), encoding="utf-8")
    pq.write_table(pa.table({"id": range(15), "body": texts[3]}), folder / "d.parquet", row_group_size=4)
    return dict(zip(sorted(folder.iterdir()), texts, strict=True))


def job(folder, make=Letters, column="body", **settings):
    return Job(make, texts_by_line, VectorStore(folder, **settings), column)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("layout", ["parquet", "npy"])
def test_every_shard_gets_the_vectors_of_its_lines_in_order(shards, tiny_bert, tmp_path, monkeypatch, layout):
    monkeypatch.setattr("eval.vectors.job.ROWS", 7)  # several pieces a shard, the last one shorter
    out = tmp_path / "out"
    flags = ["--model", str(tiny_bert), "--pooling", "avg", "--output", str(out), "--format", layout]
    records = main([str(tmp_path / "in"), *flags, "--column", "body"])
    vectors = encode_of(tiny_bert, "avg")([text for part in shards.values() for text in part])
    found = [read_vectors(out / f"{stem}.{layout}") for stem in ("a", "b.1", "c", "d")]
    assert [len(part) for part in found] == [len(part) for part in shards.values()]
    assert np.allclose(np.concatenate(found), vectors, atol=1e-5)
    assert not np.allclose(vectors[:-1], vectors[1:], atol=1e-2), "neighbours differ, so the order is seen"
    assert [(one["source"], one["rows"], one["width"], one["new"]) for one in records] == [
        (path.name, len(part), 32, True) for path, part in shards.items()
    ]


@pytest.mark.parametrize(("layout", "dtype"), [(f, d) for f in ("parquet", "npy") for d in ("float16", "int8")])
def test_smaller_types_are_read_back(shards, tmp_path, layout, dtype):
    out = tmp_path / "out"
    encode_corpus(job(out, format=layout, dtype=dtype), [str(tmp_path / "in")], 1)
    for path, texts in shards.items():
        expected, found = Letters()(texts), read_vectors(out / f"{stem_of(path)}.{layout}")
        assert found.dtype == np.float32
        bound = 0 if dtype == "float16" else expected.max(axis=1, keepdims=True) / 254 * 1.001  # small counts are exact
        assert (np.abs(found - expected) <= bound).all()
    stored_as = np.load(out / "a.npy").dtype if layout == "npy" else pq.read_schema(out / "a.parquet")
    assert ("int8" if dtype == "int8" else "float16" if layout == "npy" else "halffloat") in str(stored_as)


@pytest.mark.parametrize("width", [16, 768])
def test_int8_changes_the_direction_of_a_vector_little(width):
    """Cosine 1 - e with e about scale ** 2 / 24 / mean v ** 2: 4e-5 where max |v| is 3.5 standard deviations."""
    vectors = np.random.default_rng(0).normal(size=(500, width)).astype(np.float32)
    vectors *= np.logspace(-30, 30, 500, dtype=np.float32)[:, None]  # a scale for each: no vector spoils another
    vectors[7] = 0
    entries, scales = quantised(vectors)
    assert (entries.dtype, entries.min() >= -127, scales.dtype, scales.shape) == (np.int8, True, np.float32, (500,))
    restored = entries.astype(np.float64) * scales[:, None]
    assert (restored[7] == 0).all()
    a, b = (np.delete(each, 7, axis=0).astype(np.float64) for each in (vectors, restored))
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert 1 - cosine.min() < 1e-4
    with pytest.raises(BadInput, match="float16: the model returns entries above"):
        stored(vectors, "float16")


DRIVER = """
import sys
from functools import partial
from pathlib import Path
from common.errors import run_command
from data.lines import texts_by_line
from eval.vectors.job import Job
from eval.vectors.store import VectorStore
from eval.vectors.workers import encode_corpus
from tests.eval.letters import Letters
job = Job(partial(Letters, pause=float(sys.argv[4])), texts_by_line, VectorStore(Path(sys.argv[2])), "body")
run_command(lambda: encode_corpus(job, [sys.argv[1]], int(sys.argv[3])))
"""


def seen(path):
    return path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_run_goes_on_and_leaves_done_shards_alone(tmp_path, sentences, processes):
    texts, out = tmp_path / "in", tmp_path / "out"
    texts.mkdir()
    for i in range(12):
        (texts / f"{i:02}.txt").write_text("\n".join(sentences[20 * i : 20 * i + 20]), encoding="utf-8")
    command = [sys.executable, "-c", DRIVER, str(texts), str(out), str(processes), "0.15"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        while len(list(out.glob("*.done.json"))) < 3 and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    (out / "11.parquet.0123abcd.part").write_bytes(b"half a shard")  # surely one that was being written
    stems = [record.name.removesuffix(".done.json") for record in out.glob("*.done.json")]
    done = {path: seen(path) for stem in stems for path in (out / f"{stem}.done.json", out / f"{stem}.parquet")}
    assert 6 <= len(done) < 24
    records = encode_corpus(job(out), [str(texts)], 1)
    assert sum(not record["new"] for record in records) >= len(done) // 2
    assert {path: seen(path) for path in done} == done
    found = [read_vectors(out / f"{i:02}.parquet") for i in range(12)]
    assert (np.concatenate(found) == Letters()(sentences[:240])).all()
    assert not list(out.glob("11.*.part"))


def test_a_shard_that_changes_while_it_is_encoded_is_not_done(tmp_path):
    shard, out = tmp_path / "a.txt", tmp_path / "out"
    shard.write_text("a\nb\n")
    encode = Letters()

    def editing(texts):
        shard.write_text("other\nlines\n")
        return encode(texts)

    work = job(out)
    work.start("cpu")
    said = refused(work.encode_shard, editing, shard)
    assert said == f"{shard}: changed while it was encoded; run the command again"
    assert names(out) == ["manifest.json"]
    assert work.encode_shard(encode, shard)["rows"] == 2


@pytest.mark.parametrize("edited", [False, True])
def test_a_kill_after_the_record_leaves_nothing_that_refuses_the_shard(tmp_path, edited):
    shard, out = tmp_path / "a.txt", tmp_path / "out"
    shard.write_text("a\n")
    [record] = encode_corpus(job(out), [str(shard)], 1)
    (out / f"a.{record['sha256'][:16]}.begun").touch()  # as the kill leaves it
    if edited:
        shard.write_text("b\n")
        assert "the text has changed" in refused(encode_corpus, job(out), [str(shard)], 1)
        (out / "a.done.json").unlink()  # as the message advises
        (out / "a.parquet").unlink()
    [again] = encode_corpus(job(out), [str(shard)], 1)
    assert again["new"] == edited and not list(out.glob("*.begun"))


def test_an_input_folder_is_not_the_output_too(tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    assert "is also an input" in refused(encode_corpus, job(tmp_path), [str(tmp_path)], 1)
    assert names(tmp_path) == ["a.txt"]


def test_a_folder_of_another_model_or_kind_is_refused(shards, tmp_path):
    out, given = tmp_path / "out", [str(tmp_path / "in")]
    encode_corpus(job(out), given, 1)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    other = job(out, partial(Letters, identity="others"))
    assert "(model letters, now others)" in refused(encode_corpus, other, given, 1)
    assert "(dtype float32, now int8)" in refused(encode_corpus, job(out, dtype="int8"), given, 1)
    assert "(format parquet, now npy)" in refused(encode_corpus, job(out, format="npy"), given, 1)
    (out / "manifest.json").unlink()
    assert "contains a.done.json, but no manifest.json of vectors" in refused(encode_corpus, job(out), given, 1)
    del before["manifest.json"]
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("shard", ["c.parquet", "c.txt"])  # what is at the output's path: the input or another file
def test_foreign_files_are_not_replaced(tmp_path, shard):
    theirs = tmp_path / "c.parquet"
    theirs.write_bytes(table_of(["a", "b"]))
    (tmp_path / "c.txt").write_text("a\n")
    before = theirs.read_bytes()
    said = refused(encode_corpus, job(tmp_path), [str(tmp_path / shard)], 1)
    assert said == f"{tmp_path}: contains c.parquet, but no manifest.json of vectors; choose a new or empty folder"
    assert names(tmp_path) == ["c.parquet", "c.txt"] and theirs.read_bytes() == before


def test_foreign_files_are_not_replaced_by_later_shards_either(tmp_path):
    texts, out = tmp_path / "in", tmp_path / "out"
    texts.mkdir()
    for name in ("first", "mine"):
        (texts / f"{name}.txt").write_text("a\n")
    encode_corpus(job(out), [str(texts / "first.txt")], 1)
    (out / "mine.parquet").write_bytes(table_of(["a", "b"]))
    before = (out / "mine.parquet").read_bytes()
    said = refused(encode_corpus, job(out), [str(texts / "mine.txt")], 1)
    assert said == f"{out / 'mine.parquet'}: already exists and would be overwritten; choose another --output"
    assert (out / "mine.parquet").read_bytes() == before


def test_two_commands_do_not_write_two_texts_of_one_name(tmp_path):
    """While the first runs the second is refused; when the first was killed, only its own text can be resumed."""
    out = tmp_path / "out"
    for folder, text in (("wiki", "a tale\n"), ("books", "it is\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "part-0.txt").write_text(text)
    mine, other = tmp_path / "wiki" / "part-0.txt", tmp_path / "books" / "part-0.txt"

    class Meets(Letters):
        def __call__(self, texts):
            said = refused(encode_corpus, job(out), [str(other)], 1)
            assert said.startswith(
                f"{other}: another text with this name is being written to {out / 'part-0.parquet'}; "
            )
            return super().__call__(texts)

    [record] = encode_corpus(job(out, Meets), [str(mine)], 1)
    assert record["new"] and names(out) == ["manifest.json", "part-0.done.json", "part-0.parquet"]
    assert "the text has changed since" in refused(encode_corpus, job(out), [str(other)], 1)
    (out / "part-0.parquet").unlink()
    assert "the text has changed since" in refused(encode_corpus, job(out), [str(other)], 1)

    (out / "part-0.done.json").unlink()
    (out / f"part-0.{record['sha256'][:16]}.begun").touch()  # as a kill leaves it
    assert "if no other command is running, remove " in refused(encode_corpus, job(out), [str(other)], 1)
    assert encode_corpus(job(out), [str(mine)], 1)[0]["new"]


def test_vectors_of_another_column_are_refused(tmp_path):
    path, out = tmp_path / "c.parquet", tmp_path / "out"
    pq.write_table(pa.table({"body": ["a"], "title": ["b"]}), path)
    encode_corpus(job(out), [str(path)], 1)
    said = refused(encode_corpus, job(out, column="title"), [str(path)], 1)
    assert said == f"{path}: it was encoded from column 'body', not 'title'; choose another --output"
    assert [one["new"] for one in encode_corpus(job(out), [str(path)], 1)] == [False]


def test_a_worker_process_refuses_in_the_same_words(shards, tmp_path):
    out, given = tmp_path / "out", [str(tmp_path / "in")]
    encode_corpus(job(out), given, 1)
    (tmp_path / "in" / "a.txt").write_text("other\n")
    command = [sys.executable, "-c", DRIVER, *given, str(out), "2", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line.startswith("error: ")] == [
        f"error: {tmp_path}/in/a.txt: the text has changed since {out}/a.done.json was written; remove it to compute "
        "the shard again"
    ]


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [flipped, lambda c: c[:-30], lambda c: b"", lambda c: c[:200].ljust(len(c), b"\0")],
                         ids=["a bit", "cut", "empty", "zeroed"])  # fmt: skip
@pytest.mark.parametrize(("layout", "dtype", "end"), [("parquet", "float32", ".parquet"), ("npy", "float32", ".npy"),
                                                     ("npy", "int8", ".scale.npy")])  # fmt: skip
def test_a_damaged_output_is_encoded_again_and_logged(shards, tmp_path, caplog, layout, dtype, end, damage):
    out, given = tmp_path / "out", [str(tmp_path / "in")]
    made = job(out, format=layout, dtype=dtype)
    encode_corpus(made, given, 1)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    (out / f"a{end}").write_bytes(damage(before[f"a{end}"]))
    caplog.clear()
    caplog.set_level("INFO")
    assert [one["new"] for one in encode_corpus(made, given, 1)] == [True, False, False, False]
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    lines = [record.message for record in caplog.records if "again" in record.message]
    assert lines == [f"1 of 4 shards: a.txt, 20 rows, encoded again: a{end} has changed since it was written"]


def test_a_pipe_and_missing_or_empty_inputs_are_refused_and_named(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    said = refused(encode_corpus, job(tmp_path / "out"), [str(tmp_path / "pipe.txt")], 1)
    assert said == f"{tmp_path / 'pipe.txt'}: not a regular file"
    assert "gone.txt: no such file" in refused(encode_corpus, job(tmp_path / "out"), ["gone.txt"], 1)
    (tmp_path / "empty").mkdir()
    assert "the folder contains no files" in refused(encode_corpus, job(tmp_path), [str(tmp_path / "empty")], 1)
    assert "--processes 0" in refused(encode_corpus, job(tmp_path), ["gone.txt"], 0)


def test_a_lost_output_is_encoded_again_and_a_damaged_record_refused(shards, tmp_path):
    out, given = tmp_path / "out", [str(tmp_path / "in")]
    encode_corpus(job(out), given, 1)
    whole = (out / "a.parquet").read_bytes()
    (out / "a.parquet").unlink()
    assert [one["new"] for one in encode_corpus(job(out), given, 1)] == [True, False, False, False]
    assert (out / "a.parquet").read_bytes() == whole
    (out / "a.done.json").write_text("[]")
    assert "not the record of a shard" in refused(encode_corpus, job(out), given, 1)


def table_of(column, name="body"):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({name: column}), sink)
    return sink.getvalue().to_pybytes()


NOT_UTF8 = pa.StringArray.from_buffers(2, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"a\xff"))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.txt", b"", "x.txt: contains no text; remove it from the inputs"),
        ("x.txt", b"good\nn\xf6t\n", "x.txt:2: byte 2 is not UTF-8"),
        ("x.txt", b'\n{"_id": "1", "text": "a"}\n', "x.txt: a table, not one text per line; convert it"),
        ("x.jsonl", b'{"any": "thing"}\n', "x.jsonl: a table, not one text per line; convert it"),
        (
            "x.csv.gz",
            gzip.compress(b"any,thing\na,b\n", mtime=0),
            "x.csv.gz: a table, not one text per line; convert it",
        ),
        ("x.txt.gz", gzip.compress(b"good\n" * 99, mtime=0)[:-9], "the compressed file is damaged or truncated"),
        ("x.parquet", table_of(["a"], "content"), "x.parquet: no column 'body'; set --column to one of: content"),
        ("x.parquet", table_of([1, 2]), "column 'body' is int64, not string"),
        ("x.parquet", table_of(["a", None]), "x.parquet: row 2: 'body' is null"),
        ("x.parquet", table_of(NOT_UTF8), "x.parquet: after row 0: not a complete Parquet file of UTF-8 text ("),
        ("x.parquet", table_of(pa.array([], pa.string())), "x.parquet: contains no text"),
        ("x.parquet", table_of(["a"])[:-9], "not a complete Parquet file of UTF-8 text ("),
    ],
)
def test_a_bad_shard_is_named_and_leaves_no_output(tmp_path, name, content, said):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(content)
    message = refused(encode_corpus, job(tmp_path / "out"), [str(tmp_path / "in")], 1)
    assert message.startswith(str(tmp_path / "in" / name)) and said in message
    assert not (tmp_path / "out").exists() or names(tmp_path / "out") == ["manifest.json"]


def test_a_shard_that_cannot_be_opened_is_refused_before_the_first_is_encoded(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_bytes(table_of(["a"]))
    for content in (table_of(["a"], "content"), table_of(["a"])[:-9], b'{"_id": "1", "text": "a"}\n'):
        (tmp_path / "in" / "z.parquet").write_bytes(content)
        assert "z.parquet: " in refused(encode_corpus, job(tmp_path / "out"), [str(tmp_path / "in")], 1)
        assert not (tmp_path / "out").exists()


def test_shards_with_the_same_output_are_refused_before_encoding(shards, tmp_path):
    (tmp_path / "other").mkdir()
    for second in ("a.parquet", "a.txt.zst", "a"):
        (tmp_path / "other" / second).write_text("text")
        given = [str(tmp_path / "in"), str(tmp_path / "other" / second)]
        said = refused(encode_corpus, job(tmp_path / "out"), given, 1)
        assert said.startswith(f"{tmp_path}/in/a.txt and {tmp_path}/other/{second} would both be written to ")
    assert not (tmp_path / "out").exists()


def test_the_folder_describes_its_content(shards, tmp_path):
    out = tmp_path / "out"
    encode_corpus(job(out, format="npy", dtype="int8"), [str(path) for path in shards], 1)
    kept = [f"{stem}{end}" for stem in ("a", "b.1", "c", "d") for end in (".done.json", ".npy", ".scale.npy")]
    assert names(out) == sorted([*kept, "manifest.json"])
    expected = {"model": "letters", "max_length": 32, "format": "npy", "dtype": "int8"}
    assert json.loads((out / "manifest.json").read_text()) == expected
