"""Documents of lines, tables and BEIR's format are the same documents."""

import json

import pytest

from adapt.documents import read_documents
from adapt.held_out import Document
from common.errors import BadInput


def test_titles_and_bodies_of_every_kind(tmp_path):
    rows = [("A dog", "watches  a river"), ("", "a teacher"), ("alone", "")]
    (tmp_path / "a.csv").write_text("title,text\n" + "".join(f"{title},{text}\n" for title, text in rows))
    records = [{"_id": "x", "title": title, "text": text} for title, text in rows]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "lines.txt").write_text("a dog\n\na river\n")
    (tmp_path / "no_titles.csv").write_text("text\na dog\n")
    found = {path.name: read_documents([path], tmp_path / "cache") for path in sorted(tmp_path.iterdir())}
    titled = [Document("A dog", "watches a river"), Document("", "a teacher")]
    assert found["a.csv"] == found["corpus.jsonl"] == [*titled, Document("", "alone")]
    assert found["lines.txt"] == [Document("", "a dog"), Document("", "a river")]
    (tmp_path / "headed.tsv").write_text("name\tbody\na dog\ta river\n")
    assert read_documents([tmp_path / "headed.tsv"], tmp_path / "cache", "body") == [Document("", "a river")]
    (tmp_path / "lines.jsonl").write_text(json.dumps({"text": "one\n\nparagraph\tmore"}) + "\n")
    assert read_documents([tmp_path / "lines.jsonl"], tmp_path / "cache") == [Document("", "one paragraph more")]
    (tmp_path / "cut.jsonl").write_text('{"text": "a"}\n{"text": "b')
    with pytest.raises(BadInput, match=r"cut\.jsonl:2: not JSON"):
        read_documents([tmp_path / "cut.jsonl"], tmp_path / "cache")
    assert found["no_titles.csv"] == [Document("", "a dog")]
