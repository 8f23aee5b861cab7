"""Evaluation files: graded pairs, the sets of transfer tasks, retrieval sets."""

import json

from hypothesis import assume, given
from hypothesis import strategies as st

from eval.retrieval.beir_files import read_corpus, read_qrels, read_queries
from eval.sts import read_columns, read_sts_year
from eval.transfer import tasks
from tests.fuzz.damage import MANY, altered, damaged, result

_NUMBERS = [b"5.0", b"-1", b"5.1", b"inf", b"\t3\t", b"0x1", b"1_0", b"\xd9\xa3"]
_OWN = b'sentence1\tsentence2\tscore\nA "lone\tquote\t2.5\nNone\tNA\t0\n007\tc d\t5\n'
_SICK = b"pair_ID\tsentence_A\tsentence_B\trelatedness_score\n1\ta b\tc\t3.1\n2\td\te\t4\n3\tf\tg\t5\n"
_FORMS = [(_OWN, ("score", "sentence1", "sentence2")), (_OWN.partition(b"\n")[2], (2, 0, 1))]
_FORMS += [(_SICK, ("relatedness_score", "sentence_A", "sentence_B"))]
_CELL = st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r\0"), max_size=12).filter(str.strip)


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


@MANY
@given(st.lists(st.tuples(_CELL, _CELL, st.floats(0, 5)), min_size=2, max_size=5), st.permutations([0, 1, 2]))
def test_pairs_that_were_written_are_read(tmp_path, rows, order):
    assume(len({gold for _, _, gold in rows}) > 1)
    path = tmp_path / "pairs.tsv"
    lines = [("left", "right", "gold"), *((left, right, repr(gold)) for left, right, gold in rows)]
    path.write_bytes("".join("\t".join(line[i] for i in order) + "\n" for line in lines).encode())
    pairs = read_columns(path, "gold", "left", "right")
    assert pairs.gold == [gold for _, _, gold in rows]
    for parsed, at in ((pairs.left, 0), (pairs.right, 1)):
        assert parsed == [" ".join(row[at].split()) for row in rows]


@MANY
@given(damaged(b"a b\tc\nd\te f\ng\th\n"), damaged(b"1\n\n4.2\n", _NUMBERS))
def test_a_year_of_sts_is_read_or_refused(tmp_path, texts, golds):
    (tmp_path / "STS.input.X.txt").write_bytes(texts)
    (tmp_path / "STS.gs.X.txt").write_bytes(golds)
    pairs = result(read_sts_year, tmp_path, "X")
    if pairs is not None:
        _whole(pairs, 0)


_SETS = {  # reader: (files, their content, the classes)
    "mr": (lambda root: tasks.read_two_files(root, "pos", "neg"), ("pos", "neg"), b"a film \xe9\n\nb c\n", 2),
    "sst": (
        tasks.read_sst,
        [f"SST/binary/sentiment-{split}" for split in ("train", "dev", "test")],
        b"a b\t1\nc\t0\n",
        2,
    ),
    "trec": (tasks.read_trec, ("TREC/train_5500.label", "TREC/TREC_10.label"), b"DESC:manner How ?\nNUM:x y\n", 6),
    "mrpc": (
        tasks.read_mrpc,
        [f"MRPC/msr_paraphrase_{split}.txt" for split in ("train", "test")],
        b'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta "b\tc\n0\t7\t8\td\te\n',
        2,
    ),
}


@MANY
@given(st.sampled_from(sorted(_SETS)), st.data())
def test_sets_of_transfer_tasks_are_read_or_refused(tmp_path, name, data):
    read, paths, valid, classes = _SETS[name]
    for path in paths:
        spot = tmp_path / tasks.DOWNSTREAM / path
        spot.parent.mkdir(parents=True, exist_ok=True)
        spot.write_bytes(data.draw(damaged(valid, [b"HUM:", b"\t1", b"2\t"])))
    for split in (result(read, tmp_path) or {}).values():
        assert len(split.texts) == len(split.labels)
        assert all(label in range(classes) for label in split.labels)
        lengths = [tuple(len(text.split()) for text in texts) for texts in split.texts]
        assert lengths == sorted(lengths)


_CORPUS = [{"_id": f"d{i}", "text": "a b", "metadata": {}} | {"title": "t"} for i in range(3)]
_QUERIES = [{"_id": f"q{i}", "text": "who ?"} for i in range(3)]
_QRELS = b"query-id\tcorpus-id\tscore\nq0\td1\t1\nq0\td2\t0\nq2\td0\t-1\n"


def _jsonl(records):
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def _some_jsonl(valid):
    changed = altered(valid).map(lambda parsed: _jsonl(parsed if isinstance(parsed, list) else [parsed]))
    return changed | damaged(_jsonl(valid), [b"\\ud800", b"[" * 5000, b"1" * 5000, b'{"_id": "d0"}', b"NaN"])


@MANY
@given(_some_jsonl(_CORPUS))
def test_a_corpus_is_read_or_refused(tmp_path, content):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(content)
    corpus = result(read_corpus, path)
    if corpus is None:
        return
    ids = corpus.ids.to_pylist()
    assert len(set(ids)) == len(ids) == len(corpus) and all(ids)
    assert corpus.starts[-1] == len(content)
    assert len(corpus.texts(0, len(corpus))) == len(ids)
    assert corpus.index_of(ids[-1:]) == [len(ids) - 1][: len(ids)]


@MANY
@given(_some_jsonl(_QUERIES))
def test_queries_are_read_or_refused(tmp_path, content):
    path = tmp_path / "queries.jsonl"
    path.write_bytes(content)
    queries = result(read_queries, path)
    assert all(name and isinstance(text, str) for name, text in (queries or {}).items())


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
