"""Documents of every format are the same documents, and held-out ones an honest search task."""

import gzip
import json
from itertools import pairwise

import numpy as np
import pytest
from datasets import Dataset

from adapt.documents import DISTRACTORS, Document, pseudo_query, read_documents, split, with_unique_titles, write_task
from common.errors import BadInput
from eval.retrieval.beir import read_set


def words(rng, count):
    return " ".join(f"w{number}" for number in rng.integers(0, 5000, size=count))


@pytest.fixture
def documents():
    rng = np.random.default_rng(1)
    return [Document(words(rng, 5), words(rng, 30)) for _ in range(150)]


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
    (tmp_path / "titled.tsv").write_text("title\ttext\nA dog\twatches a river\n\ta teacher\n")
    assert read_documents([tmp_path / "titled.tsv"], tmp_path / "cache", "text") == titled
    assert read_documents([tmp_path / "headed.tsv"], tmp_path / "cache", "body", "name") == [
        Document("a dog", "a river")
    ]
    for path, column in (("a.csv", None), ("headed.tsv", "body")):
        with pytest.raises(BadInput, match="no column 'headline'"):
            read_documents([tmp_path / path], tmp_path / "cache", column, "headline")
    (tmp_path / "lines.jsonl").write_text(json.dumps({"text": "one\n\nparagraph\tmore"}) + "\n")
    assert read_documents([tmp_path / "lines.jsonl"], tmp_path / "cache") == [Document("", "one paragraph more")]
    (tmp_path / "odd.jsonl").write_text(json.dumps({"text": "one\0two"}) + "\n")
    assert read_documents([tmp_path / "odd.jsonl"], tmp_path / "cache") == [Document("", "one two")]
    Dataset.from_dict({"text": ["word " * 201_000]}).to_parquet(tmp_path / "book.parquet")
    with pytest.raises(BadInput, match=r"book\.parquet: .* is longer than 1,000,000 bytes"):
        read_documents([tmp_path / "book.parquet"], tmp_path / "cache")
    (tmp_path / "cut.jsonl").write_text('{"text": "a"}\n{"text": "b')
    with pytest.raises(BadInput, match=r"cut\.jsonl:2: not JSON"):
        read_documents([tmp_path / "cut.jsonl"], tmp_path / "cache")
    (tmp_path / "half.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a dog"}\n')[:-3])
    with pytest.raises(BadInput, match=r"half\.jsonl\.gz:2: the compressed file is damaged"):
        read_documents([tmp_path / "half.jsonl.gz"], tmp_path / "cache")
    assert found["no_titles.csv"] == [Document("", "a dog")]
    titles = read_documents([tmp_path / "a.csv"], tmp_path / "cache", "title")
    assert titles == [Document("", "A dog"), Document("", "alone")], "a title that is the text is no title"
    for path in ("lines.txt", "headed.tsv"):
        with pytest.raises(BadInput, match=rf"--title_column name: \S+{path} has no header"):
            read_documents([tmp_path / path], tmp_path / "cache", None, "name")


def test_lines_that_are_no_whole_documents_are_suspected(documents, tmp_path, caplog):
    pages = [tmp_path / f"{name}.txt" for name in "ab"]
    for path in pages:
        path.write_text("".join(f"{document.title}\n" for document in documents))
    read_documents(pages, tmp_path / "cache")
    assert "300 documents in 2 files, half of them with fewer than 20 words" in caplog.text


def test_queries_come_from_documents_that_are_not_trained_on(documents):
    found = split(documents, seed=0)
    assert len(found.queries) == 30 and len(found.training) == 120 and found.copies == 0
    trained = {document.body for document in found.training}
    for query, answer in found.queries:
        assert Document(query, answer) in documents and answer not in trained
    assert split(documents, seed=0) == found and split(documents, seed=1).queries != found.queries


def test_a_title_that_several_documents_have_is_no_query(documents):
    found = split([Document("Introduction", body) for _, body in documents], seed=0)
    for query, answer in found.queries:
        assert query != "Introduction" and sorted(f"{query} {answer}".split())[:1] == ["Introduction"]


def test_a_shared_title_becomes_part_of_the_body(documents):
    shared = [Document("Notes", body) for _, body in documents[:2]]
    found = with_unique_titles([*shared, *documents[2:4]])
    assert found == [*(Document("", f"Notes {body}") for _, body in shared), *documents[2:4]]


def test_documents_without_a_word_are_left_out(documents, tmp_path, caplog):
    lines = ["\ufffd", "...", *(document.body for document in documents)]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    found = read_documents([tmp_path / "a.txt"], tmp_path / "cache")
    assert [document.body for document in found] == [" ".join(line.split()) for line in lines[2:]]
    assert "2 of 152 documents contain no word and are left out" in caplog.text


def test_near_copies_of_held_out_documents_are_not_trained_on(documents):
    copies = [Document(title, f"{body} and a word more") for title, body in documents]
    found = split([*documents, *copies], seed=0)
    assert len(found.queries) == 60 and found.copies == 60
    told = {document.title for document in found.training}
    assert not told & {query for query, _ in found.queries}


@pytest.mark.parametrize("body", [
    "The first sentence has six words. The second sentence has more words than that. A third one ends the text here.",
    " ".join(f"word{i}" for i in range(40)),
])  # fmt: skip
def test_a_query_without_a_title_is_taken_out_of_its_document(body):
    query, rest = pseudo_query(Document("", body), np.random.default_rng(3))
    assert query in body and query not in rest
    assert sorted([*query.split(), *rest.split()]) == sorted(body.split())


JAPANESE = (
    "図書館の{0}階には{1}に関する資料が並んでいます。利用者は「{1}は面白い。」とよく言います。"
    "閉館は午後{2}時ですが、{3}曜日は休みです！貸出には{4}番の窓口で登録が必要です。"  # noqa: RUF001
)


def japanese(number):
    rng = np.random.default_rng(number)
    letters = "山川海空森林町村駅橋店本紙筆机窓扉庭花草木鳥魚犬猫馬牛星月"
    words = ["".join(rng.choice(list(letters), 6)) for _ in range(5)]
    return JAPANESE.format(*words)


def test_documents_without_spaces_are_held_out_and_their_copies_found():
    text = japanese(1)
    query, rest = pseudo_query(Document("", text), np.random.default_rng(0))
    ends = [text.index(mark) + len(mark) for mark in ("並んでいます。", "言います。", "です\uff01")]
    sentences = [text[start:end] for start, end in pairwise([0, *ends, None])]
    assert query in sentences and rest == text.replace(query, ""), "a quoted sentence ends none"
    unended = text.translate({ord(mark): "" for mark in "。\uff01"})
    query, rest = pseudo_query(Document("", unended), np.random.default_rng(0))
    assert query in unended and len(query) == 24 and len(query + rest) == len(unended)
    texts = [japanese(number) for number in range(150)]
    found = split([Document("", f"{more}{text}") for text in texts for more in ("", "追記あり。")], seed=0)
    assert len(found.queries) == found.copies == 60
    assert not any(query in document.body for query, _ in found.queries for document in found.training)


def test_boilerplate_makes_no_copies_but_copies_of_it_are_found(documents):
    footer = " ".join(f"footer{number}" for number in range(60))
    notes = [Document("", footer) for _ in range(30)]
    found = split([*(Document(title, f"{body} {footer}") for title, body in documents), *notes], seed=0)
    assert len(found.queries) == 36
    titled = [answer for query, answer in found.queries if not query.startswith("footer")]
    assert len(found.training) + found.copies + 36 == 180 and found.copies in (0, 29)
    assert len(titled) + sum(bool(document.title) for document in found.training) == 150


def test_too_few_documents_are_refused(documents):
    with pytest.raises(BadInput, match="50 documents: give at least 100"):
        split(documents[:50], seed=0)
    with pytest.raises(BadInput, match="0 of 100 documents"):
        split([Document("", f"short text {i}") for i in range(100)], seed=0)


def test_the_task_is_a_beir_set_whose_halves_share_no_query(documents, tmp_path):
    found = split(documents, seed=0)
    write_task(tmp_path / "task", found, seed=0)
    chosen, judged = (read_set(tmp_path / "task", part) for part in ("dev", "test"))
    assert len(chosen.queries) == len(judged.queries) == 15 and not chosen.queries.keys() & judged.queries.keys()
    assert len(chosen.corpus) == 30 + min(DISTRACTORS, 120)
    answers = dict(found.queries)
    for one in (chosen, judged):
        for name, query in one.queries.items():
            [(place, grade)] = one.grades[name].items()
            assert grade == 1 and one.corpus.texts(place, place + 1) == [answers[query]]
