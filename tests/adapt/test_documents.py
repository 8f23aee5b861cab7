"""Documents of every format are the same documents, and held-out ones an honest search task."""

import numpy as np
import pytest

from adapt.documents import (
    PASSAGE,
    Passage,
    passages,
    read_documents,
    split,
    with_unique_titles,
    write_task,
)
from adapt.pseudo import first_sentence
from common.errors import BadInput
from eval.retrieval.beir import read_set


def words(rng, count):
    return " ".join(f"w{number}" for number in rng.integers(0, 5000, size=count))


@pytest.fixture
def documents():
    rng = np.random.default_rng(1)
    return [Passage(words(rng, 5), ". ".join(words(rng, 10) for _ in range(3))) for _ in range(150)]


def test_documents_are_those_of_search_in_passages(tmp_path):
    (tmp_path / "corpus.jsonl").write_text(
        '{"title": "A dog", "text": "watches  a river"}\n{"text": "a teacher"}\n'
    )
    (tmp_path / "guide.md").write_text("# A guide\n\n" + "word " * (2 * PASSAGE + 1))
    assert read_documents([tmp_path / "corpus.jsonl"]) == [
        Passage("A dog", "watches a river"),
        Passage("", "a teacher"),
    ]
    first, *others = read_documents([tmp_path / "guide.md"])
    assert (
        first.title == "A guide"
        and len(others) == 2
        and not any(passage.title for passage in others)
    )
    assert " ".join(passage.body for passage in (first, *others)).split() == ["word"] * (
        2 * PASSAGE + 1
    )
    assert passages("notes", "a text of a file") == [Passage("", "a text of a file")], (
        "a name of a file is no title"
    )


def test_queries_come_from_documents_that_are_not_trained_on(documents):
    parts = split(documents, seed=0)
    assert len(parts.queries) == 50 and len(parts.training) == 100 and parts.copies == 0
    rest = " ".join(document.text for document in parts.training)
    for query, answer in parts.queries:
        [source] = [
            document for document in documents if answer.split()[-1] in document.text.split()[-1:]
        ]
        assert {*query.replace(".", "").split()} <= {
            *source.text.replace(".", "").split()
        } and source.body not in rest
    assert split(documents, seed=0) == parts and split(documents, seed=1).queries != parts.queries


def test_a_title_that_several_documents_have_is_no_query(documents):
    parts = split([Passage("Introduction", body) for _, body in documents], seed=0)
    assert not any("Introduction" == query for query, _ in parts.queries)


def test_a_shared_title_becomes_part_of_the_body(documents):
    shared = [Passage("Notes", body) for _, body in documents[:2]]
    unique = with_unique_titles([*shared, *documents[2:4]])
    assert unique == [*(Passage("", f"Notes {body}") for _, body in shared), *documents[2:4]]


def test_near_copies_of_held_out_documents_are_not_trained_on(documents):
    copies = [Passage(title, f"{body} and a word more") for title, body in documents]
    parts = split([*documents, *copies], seed=0)
    assert len(parts.queries) == 100 and parts.copies == 100
    told = {document.title for document in parts.training}
    assert not told & {query for query, _ in parts.queries}


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
    query, rest = first_sentence("", text)
    assert query == text[: text.index("並んでいます。") + len("並んでいます。")]
    assert rest == text.removeprefix(query)
    quoted, _ = first_sentence("", rest)
    assert quoted.endswith("言います。"), "a quoted sentence ends none"
    texts = [japanese(number) for number in range(150)]
    parts = split(
        [Passage("", f"{more}{text}") for text in texts for more in ("", "追記あり。")], 0, "none"
    )
    assert len(parts.queries) == parts.copies == 100


def test_boilerplate_makes_no_copies_but_copies_of_it_are_found(documents):
    footer = " ".join(f"footer{number}" for number in range(60))
    notes = [Passage("", footer) for _ in range(30)]
    parts = split(
        [*(Passage(title, f"{body} {footer}") for title, body in documents), *notes], seed=0
    )
    assert len(parts.queries) == 60
    assert len(parts.training) + parts.copies + 60 == 180 and parts.copies in (0, 29)


def test_too_few_documents_are_refused(documents):
    with pytest.raises(BadInput, match="16 of 50 documents"):
        split(documents[:50], seed=0)
    with pytest.raises(BadInput, match=r"1 of 60 documents .* 59 are near-copies of others"):
        split(documents[:1] * 60, seed=0)
    with pytest.raises(BadInput, match="0 of 100 documents"):
        split([Passage("", f"short text {i}") for i in range(100)], seed=0)


def test_the_task_is_a_beir_set_whose_halves_share_no_query(documents, tmp_path):
    parts = split(documents, seed=0)
    write_task(tmp_path / "task", parts, seed=0)
    chosen, judged = (read_set(tmp_path / "task", part) for part in ("dev", "test"))
    assert (
        len(chosen.queries) == len(judged.queries) == 25
        and not chosen.queries.keys() & judged.queries.keys()
    )
    assert len(chosen.corpus) == 150
    answers = dict(parts.queries)
    for half in (chosen, judged):
        for name, query in half.queries.items():
            [(index, grade)] = half.grades[name].items()
            assert grade == 1 and half.corpus.texts(index, index + 1) == [answers[query]]
