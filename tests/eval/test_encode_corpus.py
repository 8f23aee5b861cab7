"""Shards in, shards out: what comes back, what is kept after a kill, and what is refused."""

import gzip

import numpy as np
import pandas as pd
import pytest

import eval.encode_corpus.__main__ as command
from eval.vectors import read, write
from tests.encoders import encode_of
from tests.eval.toys import Letters
from tests.faults.forked import Race
from tests.refusals import refused


@pytest.fixture
def shards(tmp_path, sentences):
    """Four shards of all kinds, with an empty line and row and a repeated sentence."""
    texts = [sentences[:20], [*sentences[20:30], "", *sentences[:4]]]
    texts += [sentences[30:45], [*sentences[45:59], ""]]
    folder = tmp_path / "in"
    folder.mkdir()
    plain = ["\n".join(part) + "\n" for part in texts]
    (folder / "a.txt").write_text(plain[0], encoding="utf-8")
    (folder / "b.1.txt.gz").write_bytes(gzip.compress(plain[1].encode()))
    (folder / "c").write_text(plain[2].rstrip("\n"), encoding="utf-8")
    table = pd.DataFrame({"id": range(15), "body": [text or None for text in texts[3]]})
    table.to_parquet(folder / "d.parquet", row_group_size=4)
    return dict(zip(sorted(folder.iterdir()), texts, strict=True))


@pytest.fixture
def letters(monkeypatch):
    """Stands for the model of the command."""
    encode = Letters()
    monkeypatch.setattr(command, "load_encoder", lambda *_: (encode, None))
    monkeypatch.setattr(command, "Encode", lambda encoder, tokenizer, bf16: encoder)
    return lambda folder, *inputs: command.main(
        [*map(str, inputs), "--model=m", f"--output={folder}", "--column=body"]
    )


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_every_shard_gets_its_lines_vectors_in_order(shards, tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "ROWS", 7)  # several pieces a shard, the last one shorter
    out = tmp_path / "out"
    flags = [f"--model={tiny_bert}", "--pooling=avg", f"--output={out}", "--column=body"]
    records = command.main([str(tmp_path / "in"), *flags])
    vectors = encode_of(tiny_bert, "avg")([text for part in shards.values() for text in part])
    written = [np.load(out / stem / "vectors.npy") for stem in ("a", "b.1", "c", "d")]
    assert [len(part) for part in written] == [len(part) for part in shards.values()]
    assert np.allclose(np.concatenate(written), vectors, atol=1e-5)
    assert not np.allclose(vectors[:-1], vectors[1:], atol=1e-2), "the order is seen"
    for record, (path, part) in zip(records, shards.items(), strict=True):
        facts = {"source": path.name, "rows": len(part), "width": 32, "new": True}
        assert record.items() >= facts.items()
    assert names(out) == ["a", "b.1", "c", "d"]


def test_commands_share_shards_although_one_is_killed(shards, tmp_path, letters, monkeypatch):
    letters(tmp_path / "alone", *shards)
    race, write = Race(tmp_path, 3), command.write

    def noting(folder, parts, dtype):
        race.begin(folder.name.split(".infocse")[0])
        return write(folder, parts, dtype)

    monkeypatch.setattr(command, "write", noting)
    notes = race.run(lambda number: letters(tmp_path / "out", *shards))
    assert len(notes) == 5 and len({*notes}) == 4, "one of four shards began twice"
    for file in (tmp_path / "alone").glob("*/*"):
        other = tmp_path / "out" / file.relative_to(tmp_path / "alone")
        assert file.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("name", ["vectors.npy", "infocse.json"])
def test_a_shard_is_encoded_once_again_if_damaged_and_refused_if_of_others(tmp_path, name, caplog):
    texts, out = tmp_path / "a.txt", tmp_path / "out"
    texts.write_text("a\nbat\n")
    facts = command.encode_shard(Letters(), out, texts, "float16")
    assert (facts["rows"], facts["width"], facts["new"]) == (2, 8, True)
    assert names(out / "a") == ["infocse.json", "vectors.npy"]
    assert command.encode_shard(Letters(), out, texts, "float16") == facts | {"new": False}
    before = (out / "a" / name).read_bytes()
    (out / "a" / name).write_bytes(before[:-2] + bytes([before[-2] ^ 1]) + before[-1:])
    assert command.encode_shard(Letters(), out, texts, "float16") == facts
    assert (out / "a" / name).read_bytes() == before and "making it again" in caplog.text
    said = refused(command.encode_shard, Letters("other"), out, texts)
    assert "another origin (model letters, now other; dtype float16, now float32)" in said
    texts.write_text("another\n")
    assert "sha256" in refused(command.encode_shard, Letters(), out, texts, "float16")
    assert (out / "a" / name).read_bytes() == before
    (out / "mine").mkdir()
    (out / "mine" / name).with_suffix(".txt").write_text("mine")
    mine = texts.rename(tmp_path / "mine.txt")
    assert "mine: exists already" in refused(command.encode_shard, Letters(), out, mine)
    assert len(names(out / "mine")) == 1


def test_vectors_that_cannot_be_kept_or_read_are_refused(tmp_path):
    with pytest.raises(FloatingPointError):
        write(tmp_path, [np.full((1, 3), 1e5, dtype=np.float32)], "float16")
    np.save(tmp_path / "vectors.npy", np.ones((2, 3), dtype=np.int8))
    assert "vectors in int8 are of another version; remove" in refused(read, tmp_path)


def test_a_shard_that_changes_while_it_is_encoded_is_not_done(tmp_path):
    shard, out = tmp_path / "a.txt", tmp_path / "out"
    shard.write_text("a\nb\n")

    class Editing(Letters):
        def __call__(self, texts):
            shard.write_text("other\nlines\n")
            return super().__call__(texts)

    said = refused(command.encode_shard, Editing(), out, shard)
    assert said == f"{shard}: changed while it was encoded; run the command again"
    assert names(out) == []
    assert command.encode_shard(Letters(), out, shard)["rows"] == 2


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.txt", b"", "x.txt: contains no text; remove it from the inputs"),
        ("x.txt", b"good\nn\xf6t\n", "x.txt:2: 'utf-8' codec"),
        ("x.parquet", pd.DataFrame({"content": ["a"]}).to_parquet(), "no column 'body'"),
        ("x.parquet", pd.DataFrame({"body": [1.5]}).to_parquet(), "a cell is of type float"),
        ("x.parquet", pd.DataFrame({"body": "a"}, [0]).to_parquet()[:-9], "cannot be read as"),
    ],
)
def test_a_bad_shard_is_named_and_leaves_no_output(tmp_path, name, content, said, letters):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(content)
    message = refused(letters, tmp_path / "out", tmp_path / "in")
    assert message.startswith(str(tmp_path / "in" / name)) and said in message
    assert names(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "id\tbody\n1\tbat\n2\t\n3\tcat\n"),
        ("a.tsv.gz", "id\tbody\n1\tbat\n2\t\n3\tcat\n"),
        ("a.csv", 'id,body\n\n1,bat\n2,""\n\n3,cat\n\n'),
        ("a.jsonl", '{"body": "bat"}\n\n{"body": null}\n{"body": "cat"}\n'),
    ],
)
def test_a_table_gives_a_vector_for_every_row_of_its_column(name, content, tmp_path, letters):
    data = content.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    [facts] = letters(tmp_path / "out", tmp_path / name)
    [folder] = (tmp_path / "out").iterdir()
    assert facts["column"] == "body"
    assert np.array_equal(np.load(folder / "vectors.npy"), Letters()(["bat", "", "cat"]))


def test_shards_with_the_same_output_are_refused_before_encoding(shards, tmp_path, letters):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt.zst").write_text("text")
    inputs = tmp_path / "in", tmp_path / "other" / "a.txt.zst"
    assert "would both be written to a/" in refused(letters, tmp_path / "out", *inputs)
    assert not (tmp_path / "out").exists()
