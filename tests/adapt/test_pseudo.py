"""Pseudo-queries: what makes the query is taken out of its answer, and no copy is as good."""

import numpy as np
import pytest

from adapt.pseudo import pseudo_queries
from eval.retrieval.lexical import Words
from search.index import Document


def numbered(*texts):
    return [Document(str(number), "", text) for number, text in enumerate(texts)]


@pytest.fixture
def documents():
    """150 documents, each a title of five words and three sentences of ten: words of digits."""
    words, made = np.random.default_rng(1).integers(1000, 6000, size=(150, 35)).astype(str), []
    for number, row in enumerate(words):
        title, *body = [" ".join(part) for part in np.split(row, [5, 15, 25])]
        made.append(Document(str(number), title, f"{title} {'. '.join(body)}"))
    return made


def test_a_query_is_a_sentence_or_words_of_it_and_the_answer_has_the_rest(documents):
    queries = pseudo_queries(documents, seed=0)
    assert len(queries) == len({query.document for query in queries}) == 50
    whole = 0
    for query in queries:
        document = documents[query.document]
        body = document.text.removeprefix(document.title).strip()
        sentence = body[: body.index(".") + 1]
        assert query.answer == f"{document.title} {body.removeprefix(sentence).strip()}"
        whole += query.text == sentence
        assert query.text == sentence or 2 <= len(query.text.split()) <= 8
        assert {*Words()(query.text)} <= {*Words()(sentence)}
    assert 15 < whole < 35, "half of each kind"
    assert pseudo_queries(documents, seed=0) == queries
    assert pseudo_queries(documents, seed=1) != queries


@pytest.mark.parametrize("more", [" and a word more", ""])
def test_copies_make_no_query(documents, more):
    copies = [Document(f"c{one.id}", one.title, f"{one.text}{more}") for one in documents[:100]]
    queries = pseudo_queries([*documents, *copies], seed=0)
    assert {query.document for query in queries} == {*range(100, 150)}


def test_a_sentence_that_documents_share_is_passed_over(documents):
    shared = "All rights are reserved by the authors."
    queries = pseudo_queries(numbered(*(f"{shared} {one.text}. {shared}" for one in documents)), 0)
    assert len(queries) == 50
    assert not any({"rights", "reserved"} & {*query.text.split()} for query in queries)


def test_a_heading_is_no_part_of_the_sentence_below_it():
    documents = []
    for i in range(9):
        text = f"# Page{i}\n\n## How to do thing{i}\n\nFirst{i} do a{i} b{i}. Then c d e f{i} g.\n"
        documents.append(Document(str(i), f"Page{i}", text))
    answers = [query.answer for query in pseudo_queries(documents, seed=0)]
    assert len(answers) == 3
    for answer in answers:
        assert answer.startswith("# Page") and "## How" not in answer and "First" in answer


JAPANESE = (
    "図書館の{0}階には{1}に関する資料が並んでいます。利用者は「{1}は面白い。」とよく言います。"
    "閉館は午後{2}時ですが、{3}曜日は休みです！貸出には{4}番の窓口で登録が必要です。"  # noqa: RUF001
)


def test_sentences_of_a_script_without_spaces():
    """A quoted sentence ends none."""
    rng = np.random.default_rng(0)
    letters = list("山川海空森林町村駅橋店本紙筆机窓扉庭花草木鳥魚犬猫馬牛星月")
    words = rng.choice(letters, (30, 5, 6)).tolist()
    documents = numbered(*[JAPANESE.format(*map("".join, five)) for five in words])
    queries = pseudo_queries(documents, 0, "none")
    assert len(queries) == 10
    for query in queries:
        text = documents[query.document].text
        assert query.answer == text[text.index("並んでいます。") + len("並んでいます。") :]


def test_pieces_of_a_text_without_sentences_take_their_place():
    texts = [" ".join(f"w{number}x{i}" for i in range(40)) for number in range(9)]
    answers = [query.answer for query in pseudo_queries(numbered(*texts), seed=0)]
    assert [len(answer.split()) for answer in answers] == [28] * 3


@pytest.mark.parametrize("text", ["too short", "? !", "a few words only"])
def test_a_short_document_makes_no_query(text):
    assert pseudo_queries(numbered(*(f"{i} {text}" for i in range(9))), seed=0) == []
