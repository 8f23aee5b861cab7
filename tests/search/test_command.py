"""`python -m search` as a user types it."""

import io
import json
from itertools import pairwise

import pytest

import search.__main__ as command
from common.errors import BadInput
from embedder import Embedder
from tests.faults.forked import meanwhile


@pytest.fixture
def folder(sentences, tmp_path):
    """Three long Markdown files; the second has a word that no other has, near its end."""
    (tmp_path / "docs").mkdir()
    for number in range(3):
        lines = sentences[40 * number : 40 * number + 40]
        lines[35] += " Zanzibar is far." if number == 1 else ""
        (tmp_path / "docs" / f"{number}.md").write_text(f"# Page {number}\n\n" + "\n".join(lines))
    return tmp_path / "docs"


def test_long_files_are_built_and_queried(tiny_bert, folder, tmp_path, capsys, monkeypatch, caplog):
    index = str(tmp_path / "index")
    build = ["build", str(folder), f"--model={tiny_bert}", "--pooling=avg", f"--output={index}"]
    command.main([*build, "--window=40", "--stride=20"])
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
    assert [line for line in printed if line.startswith("query: ")] == [
        "query: zanzibar",
        "query: unheardof",
    ]
    assert printed[1].startswith("1. Page 1 (1.md)") and "BM25 0.00" in printed[5]
    with pytest.raises(BadInput, match="half of a surrogate pair; bytes that are not UTF-8"):
        command.main(["query", index, "caf\udce9"])
    with pytest.raises(BadInput, match="exists already"):
        command.main(build)


def test_windows_leave_room_for_the_prompt_and_overlap(tiny_bert, monkeypatch, tmp_path):
    """Every token is encoded: a word at every place of a text changes a window's vector."""
    (tmp_path / "long.md").write_text(" ".join(f"{number}" for number in range(100, 200)))
    model = Embedder(tiny_bert, "avg", max_length=30, document_prompt="a long prompt of ten tokens")
    monkeypatch.setattr(command, "Embedder", lambda *_, **__: model)
    output = f"--output={tmp_path / 'index'}"
    monkeypatch.setattr(command, "warn", lambda *_: None)  # it looks for the model's folder
    command.main(["build", str(tmp_path / "long.md"), "--model=m", output])
    tokens = model.tokenizer("a long prompt of ten tokens", add_special_tokens=False)["input_ids"]
    text, *_ = model.texts
    bounds = model.index.windows[:, 1:].tolist()
    for (start, end), (after, _) in pairwise(bounds):
        ids = model.tokenizer(text[start:end], add_special_tokens=False)["input_ids"]
        assert len(ids) <= 28 - len(tokens) + 2 and after < end
    model.encoder.module.prompts["document"] = "word " * 40
    with pytest.raises(BadInput, match="its document prompt leaves no room"):
        command.main(["build", str(tmp_path / "long.md"), "--model=m", f"{output}2"])


def test_a_query_may_begin_with_a_dash(tmp_path):
    with pytest.raises(BadInput, match=r"infocse\.json"):
        command.main(["query", str(tmp_path), "--", "--dry-run"])


def test_bad_flags_are_refused_before_anything_is_read(tiny_bert, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "Embedder", lambda *_, **named: pytest.fail("was loaded"))
    build = [
        "build",
        str(folder),
        f"--model={tiny_bert}",
        "--pooling=avg",
        f"--output={tmp_path / 'index'}",
    ]
    with pytest.raises(
        BadInput, match="--stride 300 is above --window 200: text between windows would be lost"
    ):
        command.main([*build, "--stride=300"])
    with pytest.raises(BadInput, match="no document"):
        command.main(["build", str(tiny_bert), *build[2:]])
    with pytest.raises(BadInput, match="begins with - goes after --"):
        command.main(["query", "index", "--dry-run"])
    with pytest.raises(BadInput, match="invalid choice"):
        command.main([*build, "--language=klingon"])


def test_of_two_builds_at_once_one_is_whole_and_the_other_refused(
    tiny_bert, folder, tmp_path, monkeypatch
):
    (tmp_path / "other.txt").write_text("one text")
    index, codes = tmp_path / "index", []
    build = [f"--model={tiny_bert}", "--pooling=avg", f"--output={index}"]

    def slow(*arguments, **named):
        monkeypatch.setattr(command, "Embedder", Embedder)
        codes.append(meanwhile(command.main, ["build", str(tmp_path / "other.txt"), *build]))
        return Embedder(*arguments, **named)

    monkeypatch.setattr(command, "Embedder", slow)
    command.main(["build", str(folder), *build])
    assert codes == [5] and len(Embedder.load_index(index).index.documents) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"docs", "other.txt", "index"}
