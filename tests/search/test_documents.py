"""Documents of files and folders, windows by tokens, snippets."""

from itertools import pairwise

import pytest

from common.errors import BadInput
from eval.retrieval.lexical import Words
from search.documents import cutter, read_documents, snippet
from search.index import Document

PAGE = """<!doctype html><html><head><title>A  page</title><style>p {color: red}</style>
<script>var x = "<p>no</p>";
</script></head><body><h1>Cats</h1><p>sleep &amp; <b>pur</b>r so<wbr>ft&shy;ly</p>
<ul><li>one</li><li>two</li></ul></body></html>"""


def test_files_of_a_folder_are_documents(tmp_path):
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "b" / "c" / "page.html").write_text(PAGE)
    (tmp_path / "a.md").write_text(
        "\ufeffSome text\n\n## The title ##\n\n# Later\n", encoding="utf-8"
    )
    (tmp_path / "b" / "notes.TXT").write_text("two\nlines")
    for name, content in (("empty.md", "\n"), ("code.py", "x = 1"), (".hidden.md", "secret")):
        (tmp_path / name).write_text(content)
    documents = {document.id: document for document in read_documents([tmp_path])}
    assert set(documents) == {"a.md", "b/c/page.html", "b/notes.TXT"}
    assert documents["a.md"].title == "The title" and documents["a.md"].text.startswith("Some text")
    assert documents["b/notes.TXT"] == Document("b/notes.TXT", "notes", "two\nlines")
    page = documents["b/c/page.html"]
    assert (
        page.title == "A page"
        and page.text.split() == "A page Cats sleep & purr soft\u00adly one two".split()
    )
    (tmp_path / "a.md").write_bytes(b"caf\xe9")
    with pytest.raises(BadInput, match=r"a\.md: not UTF-8 \(byte 3\)"):
        read_documents([tmp_path])


def test_lines_of_files_are_documents(tmp_path):
    lines, records = tmp_path / "lines.txt", tmp_path / "records.jsonl"
    lines.write_text("first\n\nthird\n")
    records.write_text('{"_id": "x", "title": "T", "text": "body", "more": 1}\n{"text": "alone"}\n')
    expected = [("1", "", "first"), ("3", "", "third"), ("x", "T", "T body"), ("2", "", "alone")]
    assert read_documents([lines, records]) == expected
    for line in ("[1]", '{"title": "no text"}', '{"text": 1}', '{"text": "a", "_id": 3}', "{"):
        records.write_text(f'{{"text": "a"}}\n{line}\n')
        with pytest.raises(
            BadInput, match=r"records\.jsonl:2: (needs an object with 'text'|not valid JSON)"
        ):
            read_documents([records])
    lines.write_text("\n")
    with pytest.raises(BadInput, match=r"lines\.txt: no document"):
        read_documents([lines])


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
        lengths = [
            len(bert_tokenizer(text[start:end], add_special_tokens=False)["input_ids"])
            for start, end in places
        ]
        assert max(abs(length - window) for length in lengths) <= 2
    assert cut("") == [(0, 0)] and cut(" \n") == [(0, 2)]


def test_a_tokenizer_without_places_counts_words():
    assert cutter(object(), 2, 1)("one two three four") == [(0, 8), (4, 14), (8, 18)]


def test_the_part_with_the_most_words_of_the_query_is_shown():
    text = f"A dog. {'filler ' * 60}the Dogs chase\n cats {'again ' * 60}"
    shown = snippet(text, "the cat and a dog", Words())
    assert (
        "filler the **Dogs** chase **cats** again" in shown
        and shown.startswith("... filler")
        and len(shown) < 260
    )
    assert shown.endswith("again ...")
    assert snippet("A short text.", "nothing", Words()) == "A short text."
    assert snippet("猫が好き", "猫", Words()) == "**猫**が好き"
    assert snippet("In Zu\u0308\u00adrich", "ZÜRICH", Words("german")) == "In **Zürich**"
    assert snippet("x" * 999, "y", Words()) == "x" * 240 + " ..."
