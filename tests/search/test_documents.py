"""Documents of files and folders, windows by tokens, snippets."""

import sys
from itertools import pairwise
from types import SimpleNamespace

import pandas as pd
import pytest

import search.documents
from common.errors import BadInput
from eval.retrieval.lexical import Words
from search.documents import FOREIGN, cutter, read_documents, snippet, unread
from search.index import Document
from tests.refusals import refused

PAGE = """<!doctype html><html><head><title>A  page</title><style>p {color: red}</style>
<script>var x = "<p>no</p>";
</script></head><body><svg><title>icon</title></svg>
<h1>Cats</h1><p>sleep &amp; <b>pur</b>r so<wbr>ft&shy;ly</p>
<ul><li>one</li><li>two</li></ul></body></html>"""


def test_files_of_a_folder_are_documents(tmp_path):
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "b" / "c" / "page.html").write_text(PAGE)
    (tmp_path / "a.md").write_text("\ufeffSome text\n\n## The title ##\n\n# Later\n", "utf-8")
    (tmp_path / "b" / "notes.TXT").write_text("two\nlines")
    for name, content in (("empty.md", "\n"), ("code.py", "x = 1"), (".hidden.md", "secret")):
        (tmp_path / name).write_text(content)
    documents = {document.id: document for document in read_documents([tmp_path])}
    assert set(documents) == {"a.md", "b/c/page.html", "b/notes.TXT"}
    assert documents["a.md"].title == "The title" and documents["a.md"].text.startswith("Some text")
    assert documents["b/notes.TXT"] == Document("b/notes.TXT", "notes", "two\nlines")
    _, title, text = documents["b/c/page.html"]
    assert title == "A page"
    assert text.split() == "A page Cats sleep & purr soft\u00adly one two".split()


def test_rows_and_lines_of_files_are_documents(tmp_path, caplog):
    text, records = tmp_path / "lines.txt", tmp_path / "records.JSONL"
    text.write_text("first\n\nthird\n")
    records.write_text(
        '{"_id": "x", "title": "T", "text": "body", "more": [1]}\n\n{"contents": "alone"}\n'
        '{"id": 7, "title": null, "body": "numbered"}\n'
    )
    expected = [("lines.txt:1", "", "first"), ("lines.txt:3", "", "third")]
    expected += [("x", "T", "T body"), ("records.JSONL:3", "", "alone"), ("7", "", "numbered")]
    assert read_documents([text, records]) == expected
    table = pd.DataFrame({"text": ["None", "b"], "name": ["N", None]})
    (tmp_path / "t.CSV").write_text('name,text\nN,None\n,"b"\n')
    (tmp_path / "t.tsv").write_text("name\ttext\nN\tNone\n\tb\n")
    table.to_parquet(tmp_path / "t.parquet")
    lines = ":2", ":3"
    for name, at in {"t.CSV": lines, "t.tsv": lines, "t.parquet": (": row 1", ": row 2")}.items():
        path = tmp_path / name
        expected = [(f"{name}{at[0]}", "N", "N None"), (f"{name}{at[1]}", "", "b")]
        assert read_documents([path], title_column="name") == expected
        assert [document.text for document in read_documents([path])] == ["None", "b"]
        assert "no column 'body' (see --text_column)" in refused(read_documents, [path], "body")
    for line in ("[1]", '{"title": "no text"}', '{"text": 1}', '{"text": "a", "title": 3}', "{"):
        records.write_text(f'{{"text": "a"}}\n{line}\n')
        said = refused(read_documents, [records])
        assert "records.JSONL:2: needs an object with a string 'text" in said
    text.write_text("\n")
    assert "lines.txt: no document" in refused(read_documents, [text])
    table.loc[0, "text"] = None
    table.to_csv(tmp_path / "t.CSV", index=False)
    caplog.clear()
    assert [document.text for document in read_documents([tmp_path / "t.CSV"])] == ["b"]
    assert "skipped 1 empty documents of 2" in caplog.text


@pytest.mark.parametrize(
    ("text", "title", "start"),
    [
        ("---\ntitle: A page\ntags: [x]\n---\nBody\n# Later\n", "A page", "A page\n\nBody"),
        ("---\ntitle: A page\n---\n\n# A page\nBody\n", "A page", "# A page\nBody"),
        ("---\r\ntags: x\r\n...\r\n# First #\r\nBody", "First", "# First"),
        ("---\njust text\n---\n# First\n", "First", "---\njust"),
        ("```sh\n# a comment\n```\nText\n# Real\n", "Real", "```sh\n# a comment"),
        ("~~~~\n# a\n~~~\n# b\n~~~~\n## c ##\n", "c", "~~~~"),
        ("```\n# never closed\n", "page", "```"),
        ("#hashtag\n", "page", "#hashtag"),
        ("# \n\n## Real\n", "Real", "#"),
        ("---\ntitle: [tags]\n---\nBody", "page", "Body"),
    ],
)
def test_a_title_is_in_front_matter_or_the_first_heading_outside_code(tmp_path, text, title, start):
    (tmp_path / "page.md").write_bytes(text.encode())
    [document] = read_documents([tmp_path / "page.md"])
    assert document.title == title and document.text.startswith(start)
    assert "tags" not in document.text


@pytest.mark.parametrize("piece", ["<a <a", "<a/", "<a =", "<![CDATA[", "<!--", "# a  ", "&#"])
def test_damaged_pages_take_no_longer_than_others(tmp_path, piece):
    """Quadratic time would be minutes here."""
    for name in ("page.html", "page.md"):
        (tmp_path / name).write_text(f"<![if !IE]>seen {piece * (300_000 // len(piece))}")
        [document] = read_documents([tmp_path / name])
        assert "seen" in document.text


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("a.md", b"caf\xe9", r"not UTF-8 \(byte 3\)"),
        ("a.md", "text".encode("utf-16"), "not UTF-8"),
        ("a.html", "text".encode("utf-16-le"), "NUL character"),
        ("a.txt", "text".encode("utf-16-le"), "NUL byte"),
        ("a.jsonl", rb'{"text": "\ud800"}', "half of a surrogate pair"),
        ("a.jsonl", rb'{"text": "a\u0000"}', "NUL character"),
        ("a.md", b"x" * 101, "more than 100 bytes"),
        ("a.jsonl", b'{"text": "%s"}' % (b"x" * 99), "longer than 100 bytes"),
        ("a.PDF", b"%PDF", r"need markitdown \(pip install"),
        ("a.json", b"{}", r"need markitdown \(pip install"),
    ],
)
def test_files_that_are_no_text_are_refused_by_name(tmp_path, monkeypatch, name, content, error):
    monkeypatch.setattr(search.documents, "_LARGEST", 100)
    monkeypatch.setitem(sys.modules, "markitdown", None)
    (tmp_path / name).write_bytes(content)
    refused(read_documents, [tmp_path / name], match=f"{name}.*{error}")


def test_a_title_column_that_no_line_has_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a", "title": "b"}\n{"text": "c"}\n')
    titles = [title for _, title, _ in read_documents([tmp_path / "a.jsonl"], None, "title")]
    assert titles == ["b", ""]
    with pytest.raises(BadInput, match="no document has a title in 'titel'"):
        read_documents([tmp_path / "a.jsonl"], None, "titel")
    (tmp_path / "b.jsonl").write_text('{"text": "d"}\n')
    assert len(read_documents([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], None, "title")) == 3


def test_other_formats_are_what_markitdown_makes_of_them(tmp_path, monkeypatch):
    class MarkItDown:
        def convert(self, path):
            return SimpleNamespace(text_content=f"# Title\n\n{path.read_text()}")

    monkeypatch.setitem(sys.modules, "markitdown", SimpleNamespace(MarkItDown=MarkItDown))
    monkeypatch.setattr(search.documents, "find_spec", lambda _: None)
    (tmp_path / "a.pdf").write_text("body")
    (tmp_path / "b.md").write_text("page")
    assert read_documents([tmp_path / "a.pdf"]) == [("a.pdf", "Title", "# Title\n\nbody")]
    assert [document.id for document in read_documents([tmp_path])] == ["b.md"]
    monkeypatch.setattr(search.documents, "find_spec", lambda name: name)
    assert [document.id for document in read_documents([tmp_path])] == ["a.pdf", "b.md"]


def test_an_id_occurs_once(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "index.md").write_text("text")
    said = refused(read_documents, [tmp_path / "a", tmp_path / "b"])
    assert "b/index.md: the id 'index.md' is also that of" in said and "a/index.md" in said
    ids = [document.id for document in read_documents([tmp_path])]
    assert ids == ["a/index.md", "b/index.md"]


@pytest.mark.parametrize(("window", "stride"), [(5, 2), (5, 5), (7, 3), (200, 100)])
def test_windows_cover_a_text(bert_tokenizer, sentences, window, stride):
    cut, text = cutter(bert_tokenizer, window, stride), "  " + " ".join(sentences[:4]) + " "
    places = cut(text)
    assert places[0][0] == 0 and places[-1][1] == len(text)
    count = len(bert_tokenizer(text, add_special_tokens=False)["input_ids"])
    assert len(places) == (1 if count <= window else 1 + -(-(count - window) // stride))
    for (start, end), (after, until) in pairwise(places):
        assert start < after <= end < until, "no gap, and every window reaches further"
    if count > window:  # a window that begins or ends within a word has other tokens there
        cuts = [text[start:end] for start, end in places]
        lengths = map(len, bert_tokenizer(cuts, add_special_tokens=False)["input_ids"])
        assert max(abs(length - window) for length in lengths) <= 2
    assert cut("") == [(0, 0)] and cut(" \n") == [(0, 2)]


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_language_that_a_vocabulary_does_not_know_is_told(request, family):
    tokenizer = request.getfixturevalue(f"{family}_tokenizer")
    assert unread(tokenizer, ["the the the"] * 99) < FOREIGN
    for text in ("Комитет опубликовал доклад", "委员会发布了报告", "위원회는 보고서를", "รายงาน"):
        assert unread(tokenizer, [text] * 300) > FOREIGN
    assert unread(tokenizer, [""]) == 0
    assert unread(tokenizer, ["x y z"]) < FOREIGN, "too little to tell"


def test_the_part_with_the_most_words_of_the_query_is_shown():
    text = f"A dog. {'filler ' * 60}the Dogs chase\n cats {'again ' * 60}"
    shown = snippet(text, "the cat and a dog", Words())
    assert "filler the **Dogs** chase **cats** again" in shown and len(shown) < 260
    assert shown.startswith("... filler") and shown.endswith("again ...")
    assert snippet("A short text.", "nothing", Words()) == "A short text."
    assert snippet("猫が好き", "猫", Words()) == "**猫**が好き"
    assert snippet("In Zu\u0308\u00adrich", "ZÜRICH", Words("german")) == "In **Zürich**"
    assert snippet("x" * 999, "y", Words()) == "x" * 240 + " ..."
