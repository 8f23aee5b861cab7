"""Evaluation files of a user: graded pairs, retrieval sets."""

import json

from hypothesis import given
from hypothesis import strategies as st

from eval.retrieval.beir_files import read_corpus, read_qrels
from eval.sts import read_columns
from tests.fuzz.damage import MANY, damaged, result

_NUMBERS = [b"5.0", b"-1", b"5.1", b"inf", b"\t3\t", b"0x1", b"1_0", b"\xd9\xa3"]
_OWN = b'sentence1\tsentence2\tscore\nA "lone\tquote\t2.5\nNone\tNA\t0\n007\tc d\t5\n'
_SICK = b"pair_ID\tsentence_A\tsentence_B\trelatedness_score\n1\ta b\tc\t3.1\n2\td\te\t4\n3\tf\tg\t5\n"
_FORMS = [(_OWN, ("score", "sentence1", "sentence2")), (_OWN.partition(b"\n")[2], (2, 0, 1))]
_FORMS += [(_SICK, ("relatedness_score", "sentence_A", "sentence_B"))]


def _whole(pairs, least):
    assert len(pairs.left) == len(pairs.right) == len(pairs.gold) >= least
    assert all(0 <= score <= 5 for score in pairs.gold)
    assert all(text == " ".join(text.split()) for text in pairs.left + pairs.right)


@MANY
@given(st.sampled_from(_FORMS), st.data())
def test_columns_are_read_or_refused(tmp_path, form, data):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(data.draw(damaged(form[0], _NUMBERS)))
    pairs = result(read_columns, path, *form[1])
    if pairs is not None:
        _whole(pairs, 0)
        header = isinstance(form[1][0], str)
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
        while lines and not lines[-1].strip():
            lines.pop()
        assert len(pairs.gold) == len(lines) - header


_CORPUS = [{"_id": f"d{i}", "text": "a b", "metadata": {}} | {"title": "t"} for i in range(3)]
_QUERIES = [{"_id": f"q{i}", "text": "who ?"} for i in range(3)]
_QRELS = b"query-id\tcorpus-id\tscore\nq0\td1\t1\nq0\td2\t0\nq2\td0\t-1\n"


def _jsonl(records):
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def _placed(qrels):
    """Judgements by spot, those of documents that are nowhere without an order."""
    return {query: sorted((max(spot, -1), grade) for spot, grade in some.items()) for query, some in qrels.items()}


@MANY
@given(damaged(_QRELS, [b"q1", b"d1\t2\n", b"-7", b"1000", b"1.5", b'"', b'"d1"', b"d9"]), st.randoms())
def test_judgements_are_read_or_refused_in_any_order(tmp_path, content, rng):
    (tmp_path / "corpus.jsonl").write_bytes(_jsonl(_CORPUS))
    corpus, path = read_corpus(tmp_path / "corpus.jsonl"), tmp_path / "test.tsv"
    path.write_bytes(content)
    parsed = result(read_qrels, path, {query["_id"]: "" for query in _QUERIES}, corpus)
    if not parsed:
        return
    for grades in parsed.values():
        assert all(spot < 3 and -999 <= grade <= 999 for spot, grade in grades.items())
    header, *rows = content.splitlines(keepends=True) if content.count(b"\r") == 0 else [content]
    rng.shuffle(rows)
    path.write_bytes(header + b"".join(rows))
    if rows:
        again = read_qrels(path, {query["_id"]: "" for query in _QUERIES}, corpus)
        assert _placed(again) == _placed(parsed)
