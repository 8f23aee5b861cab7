"""`python -m search` as a user types it."""

import io
import json
import os
import re
import shutil
import signal

import numpy as np
import pytest
from datasets import load_dataset

import search.__main__ as command
from embedder import Embedder
from eval.encode import Encode
from eval.metrics.cosine import unit
from search.index import Index
from tests.faults.forked import Race, meanwhile
from tests.refusals import refused


@pytest.fixture
def folder(sentences, tmp_path):
    """Three long Markdown files; the second has a word that no other has, near its end."""
    (tmp_path / "docs").mkdir()
    for number in range(3):
        lines = sentences[40 * number : 40 * number + 40]
        lines[35] += " Zanzibar is far." if number == 1 else ""
        (tmp_path / "docs" / f"{number}.md").write_text(f"# Page {number}\n\n" + "\n".join(lines))
    return tmp_path / "docs"


@pytest.fixture
def words(tiny_bert, folder, tmp_path):
    """Those of the command that builds tmp_path / "index"."""
    index = f"--output={tmp_path / 'index'}"
    return ["build", str(folder), f"--model={tiny_bert}", "--pooling=avg", index]


def test_long_files_are_built_and_queried(words, tmp_path, capsys, monkeypatch, caplog):
    index = str(tmp_path / "index")
    command.main([*words, "--window=40", "--stride=20"])
    assert "3 documents in " in capsys.readouterr().out
    assert "not made for search: BM25 alone" in caplog.text
    command.main(["query", index, "zanzibar", "--top_k=2", "--weight=0.1"])
    first, shown, second, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("1. Page 1 (1.md): score ") and second.startswith("2. Page ")
    assert "(cosine " in first and ", BM25 " in first and "**Zanzibar** is far" in shown
    command.main(["query", index, "zanzibar", "--weight=0.1", "--json", "--under=1.md"])
    [found] = map(json.loads, capsys.readouterr().out.splitlines())
    assert found["id"] == "1.md" and found["rank"] == 1 and found["bm25"] > 0
    assert "**Zanzibar**" in found["snippet"]
    monkeypatch.setattr("sys.stdin", io.StringIO("zanzibar\n\nunheardof\n"))
    command.main(["query", index, "--top_k=1", "--weight=0.1"])
    printed = capsys.readouterr().out.splitlines()
    assert (printed[0], printed[4], len(printed)) == ("query: zanzibar", "query: unheardof", 8)
    assert printed[1].startswith("1. Page 1 (1.md)") and "BM25 0.00" in printed[5]
    said = refused(command.main, ["query", index, "caf\udce9"])
    assert "half of a surrogate pair; bytes that are not UTF-8" in said


@pytest.fixture
def build(words, capsys):
    """Builds with more words, and returns what it counts."""

    def build(*more):
        command.main([*words, *more])
        counts = r"(\d+) documents in (\d+) windows \((\d+) encoded, (\d+) kept, (\d+) dropped"
        return tuple(map(int, re.search(counts, capsys.readouterr().out).groups()))

    return build


def test_an_index_is_updated_as_it_was_built_like_a_new_one(build, folder, tmp_path, monkeypatch):
    flags = ["--window=40", "--language=german", "--dtype=float32", "--max_length=50"]
    documents, windows, encoded, kept, dropped = build(*flags)
    assert documents == 3 and windows == encoded > 30 and kept == dropped == 0
    assert json.loads((tmp_path / "index" / "infocse.json").read_text())["facts"]["stride"] == 20
    reader = Embedder.load_index(tmp_path / "index")
    (folder / "0.md").write_text((folder / "0.md").read_text() + "\n\nA new end.")
    (folder / "1.md").unlink()
    (folder / "3.md").write_text("A third page.")
    found = reader.hits(["zanzibar"], top_k=9)
    monkeypatch.setattr("search.index.ENCODED", 7)
    with monkeypatch.context() as patch:  # the index alone has the vectors of what is old
        patch.setattr("eval.store.FILE", str(tmp_path / "another.sqlite"))
        documents, windows, encoded, kept, dropped = build()
    assert documents == 3 and encoded == 2 and kept == windows - 2
    assert dropped > 10, "of the page that is gone, and the old end"
    assert reader.hits(["zanzibar"], top_k=9) == found, "of the old index, which is still open"
    updated = contents(tmp_path / "index")
    shutil.rmtree(tmp_path / "index")
    build(*flags)
    assert contents(tmp_path / "index") == updated


def test_an_update_reads_the_columns_of_the_build(tiny_bert, tmp_path, capsys):
    table, index = tmp_path / "t.csv", tmp_path / "index"
    table.write_text("text,body,name\nwrong,right,N\nwrong,right too,\n")
    words = ["build", str(table), f"--model={tiny_bert}", "--pooling=avg", f"--output={index}"]
    command.main([*words, "--text_column=body", "--title_column=name"])
    command.main(words)
    assert "(0 encoded, 2 kept, 0 dropped)" in capsys.readouterr().out.splitlines()[-1]
    assert Embedder.load_index(index).texts == ["N right", "right too"]
    table.write_text("text\nanother\n")
    refused(
        command.main, words, match="was built with --text_column body --title_column name; give"
    )


def test_an_index_saved_from_python_is_cut_into_windows_by_the_command(
    build, tiny_bert, folder, tmp_path
):
    whole = Embedder(tiny_bert, pooling="avg").build_index(["a"], lexical=True)
    whole.save(tmp_path / "index")
    updated = build()
    shutil.rmtree(tmp_path / "index")
    assert updated[1] == build()[1] > 3


def test_an_index_below_the_folder_of_its_documents_is_no_document(words, folder):
    index = folder / "index"
    for _ in range(2):
        command.main([*words[:-1], f"--output={index}"])
        (index / "README.md").write_text("About this index.")
    assert len(Index.load(index).documents) == 3


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("--max_length=20", "--max_length 20: .* was built with 64; leave the flag out"),
        ("--dtype=float32", "--dtype float32: .* was built with float16"),
        ("--bf16", "--bf16 true: .* was built with false"),
    ],
)
def test_an_index_of_other_vectors_is_refused_and_kept(build, tmp_path, word, said):
    build()
    before = (tmp_path / "index" / "infocse.json").read_bytes()
    refused(build, word, match=said)
    assert (tmp_path / "index" / "infocse.json").read_bytes() == before


def test_a_killed_build_has_lost_nothing_that_was_encoded(build, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("eval.store.PIECE", 3)
    pid = os.fork()
    if not pid:
        monkeypatch.setattr(Index, "save", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        build()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert not (tmp_path / "index").exists()
    documents, windows, encoded, kept, dropped = build()
    assert documents == 3 and encoded == dropped == 0 and kept == windows


def test_processes_of_a_launcher_share_texts_although_one_is_killed(build, tmp_path, monkeypatch):
    monkeypatch.setattr("eval.store.PIECE", 3)
    *_, encoded, _, _ = build()
    alone = contents(tmp_path / "index")
    shutil.rmtree(tmp_path / "index")
    monkeypatch.setattr("eval.store.FILE", str(tmp_path / "another.sqlite"))
    race, embed = Race(tmp_path, 2), Encode.__call__

    def noting(self, texts):
        race.begin(f"{len(texts)} {texts[0]!r}")
        return embed(self, texts)

    monkeypatch.setattr(Encode, "__call__", noting)

    def run(number):
        monkeypatch.setenv("RANK", str(1 - number))
        build()

    notes = race.run(run)
    assert len(notes) == len({*notes}) + 1, "one piece began twice"
    assert sum(int(note.split()[1]) for note in {*notes}) == encoded
    assert contents(tmp_path / "index") == alone


def test_an_index_as_parquet_has_all_windows_and_hits(words, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("eval.vectors._AT_ONCE", 50)  # windows of a shard
    index, out = str(tmp_path / "index"), tmp_path / "out"
    command.main([*words, "--window=9", "--stride=9"])
    command.main(["export", index, f"--output={out}"])
    model = Embedder.load_index(index)
    rows = load_dataset("parquet", data_files=str(out / "*.parquet"), split="train")
    assert len([*out.glob("*.parquet")]) > 3 and len(rows) == len(model.index.windows)
    assert str(len(rows)) in capsys.readouterr().out.splitlines()[-1]
    for row in rows.select(range(0, len(rows), 20)):
        document = (folder / row["id"]).read_text()
        assert row["text"] in document and row["title"] == f"Page {row['id'][0]}"
        assert model.texts[int(row["id"][0])][row["start"] : row["end"]] == row["text"]
    how = json.loads((out / "search.json").read_text())
    facts = {"similarity": "cosine", "weight": 0.5, "language": "english", "windows": len(rows)}
    assert how.items() > facts.items() and how["prompts"] == {"query": "", "document": ""}

    query = "A river overtakes the dog"
    cosines = rows.with_format("numpy")["vector"][:] @ unit(model.encode([query], "query"))[0]
    best = {}
    for row in np.argsort(-cosines, kind="stable").tolist():
        best.setdefault(rows[row]["id"], (rows[row]["start"], cosines[row]))
    [hits] = model.hits([query], 3, weight=1.0)
    for hit, (name, (start, cosine)) in zip(hits, best.items(), strict=True):
        assert (model.index.document(hit.document).id, hit.start) == (name, start)
        assert cosine == pytest.approx(hit.cosine, abs=1e-5)
    assert "exists already" in refused(command.main, ["export", index, f"--output={out}"])


def test_bad_flags_are_refused_before_anything_is_read(words, tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr(Embedder, "__init__", lambda *_, **named: pytest.fail("was loaded"))
    for wrong, said in (
        ([*words, "--stride=300"], "--stride 300 is above --window 200: text between windows"),
        ([*words, "--language=klingon"], "invalid choice"),
        (["build", str(tiny_bert), *words[2:]], "no document"),
        (["query", "index", "--dry-run"], "begins with - goes after --"),
        (["query", str(tmp_path), "--", "--dry-run"], "no index"),
    ):
        assert said in refused(command.main, wrong)


def test_of_two_builds_at_once_one_is_whole_and_the_other_refused(words, tmp_path, monkeypatch):
    other, codes = tmp_path / "other.txt", []
    other.write_text("one text")

    def slow(*arguments, **named):
        monkeypatch.setattr(command, "Embedder", Embedder)
        codes.append(meanwhile(command.main, ["build", str(other), *words[2:]]))
        return Embedder(*arguments, **named)

    monkeypatch.setattr(command, "Embedder", slow)
    command.main(words)
    assert codes == [5] and len(Embedder.load_index(tmp_path / "index").index.documents) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"docs", "other.txt", "index"}
