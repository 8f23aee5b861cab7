import json
import os
import pickle

import numpy as np
import pytest

import data.cache
import data.corpus
import data.labelled
from data.corpus import Corpus, load_corpus, write_corpus
from data.reader import Reader
from errors import BadInput


@pytest.fixture
def tokenised(monkeypatch):
    """The number of rows of every tokenisation."""
    seen = []

    class Watched(Reader):
        def __iter__(self):
            yield from super().__iter__()
            seen.append(self.rows)

    monkeypatch.setattr(data.labelled, "Reader", Watched)
    return seen


@pytest.fixture
def text(tmp_path, sentences):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(sentences[:20]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("family", ["bert_tokenizer", "roberta_tokenizer"])
@pytest.mark.parametrize("columns", [1, 2, 3])
def test_the_ids_are_the_tokenizer_s_own(request, family, columns, sentences, tmp_path, monkeypatch):
    monkeypatch.setattr(data.corpus, "_ROWS_AT_ONCE", 7)  # several chunks, the last one shorter
    tokenizer = request.getfixturevalue(family)
    rows = [sentences[i : i + columns] for i in range(0, 60, columns)]
    path = tmp_path / "rows.tsv"
    path.write_text("".join("\t".join(row) + "\n\n" for row in rows), encoding="utf-8")
    corpus = load_corpus([path], tokenizer, columns, tmp_path / "cache")
    assert (len(corpus), corpus.columns) == (60 // columns, columns)
    assert corpus.offsets.shape == (60 // columns, columns + 1)
    assert (corpus.ids.dtype, corpus.offsets.dtype, corpus.labels) == (np.int32, np.int64, None)
    for r, row in enumerate(rows):
        for c, sentence in enumerate(row):
            expected = tokenizer(sentence, add_special_tokens=False)["input_ids"]
            for longest in (10**6, 3, 0):
                ids, lengths = corpus.sentences([r], c, longest)
                assert ids.tolist() == expected[:longest]
                assert lengths.tolist() == [len(expected[:longest])]
    several = [3, 0, 3, len(rows) - 1]
    ids, lengths = corpus.sentences(several, columns - 1, 5)
    parts = np.split(ids, np.cumsum(lengths)[:-1])
    assert [part.tolist() for part in parts] == [corpus.sentences([r], columns - 1, 5)[0].tolist() for r in several]
    assert corpus.offsets[0, 0] == 0
    assert corpus.offsets[-1, -1] == len(corpus.ids)
    assert np.array_equal(corpus.offsets[1:, 0], corpus.offsets[:-1, -1])


def test_labels_stand_beside_the_rows(tmp_path):
    rows = [([[5, 6, 7], [8]], 1), ([[9], [10, 11]], 0), ([[12], [13]], 2)]
    write_corpus(tmp_path, iter(rows), {"made": "by hand"})
    corpus = Corpus(tmp_path)
    assert corpus.ids.tolist() == [5, 6, 7, 8, 9, 10, 11, 12, 13]
    assert corpus.offsets.tolist() == [[0, 3, 4], [4, 5, 7], [7, 8, 9]]
    assert (corpus.labels.tolist(), corpus.labels.dtype) == ([1, 0, 2], np.int64)
    assert corpus.facts == {"made": "by hand", "rows": 3}


def test_the_facts_tell_what_was_read(tmp_path, bert_tokenizer):
    path = tmp_path / "text.txt"
    path.write_text("\na dog\n\na river\n")
    facts = load_corpus([path], bert_tokenizer, 1, tmp_path / "cache").facts
    assert len(facts.pop("sha256")) == 64
    assert facts == {"columns": 1, "rows": 2, "empty_lines_dropped": 2}


def test_the_cache_is_used_again(text, bert_tokenizer, tmp_path, tokenised):
    first = load_corpus([text], bert_tokenizer, 1, tmp_path / "cache")
    renamed = text.rename(tmp_path / "other.name")
    os.utime(renamed, (0, 0))
    second = load_corpus([renamed], bert_tokenizer, 1, tmp_path / "cache")
    assert tokenised == [20]
    assert second.folder == first.folder
    assert np.array_equal(first.ids, second.ids)


def test_the_cache_does_not_depend_on_what_the_tokenizer_did_before(text, bert_tokenizer, tmp_path, tokenised):
    for options in ({}, {"truncation": True, "max_length": 5}, {"padding": True}):
        bert_tokenizer(["a dog", "a"], **options)
        load_corpus([text], bert_tokenizer, 1, tmp_path / "cache")
    assert tokenised == [20]


def test_one_changed_byte_is_another_text_though_size_and_time_are_kept(text, bert_tokenizer, tmp_path, tokenised):
    before = text.stat()
    first = load_corpus([text], bert_tokenizer, 1, tmp_path / "cache")
    content = bytearray(text.read_bytes())
    place = content.index(b"dog")
    content[place : place + 3] = b"cat"
    text.write_bytes(content)
    os.utime(text, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (text.stat().st_size, text.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    second = load_corpus([text], bert_tokenizer, 1, tmp_path / "cache")
    assert tokenised == [20, 20]
    assert not np.array_equal(first.ids, second.ids)


def test_tokenizer_columns_and_reader_are_part_of_the_key(
    bert_tokenizer, roberta_tokenizer, tmp_path, tokenised, monkeypatch
):
    path = tmp_path / "text.txt"
    path.write_text("a dog\ta river\n")
    cache = tmp_path / "cache"
    load_corpus([path], bert_tokenizer, 2, cache)
    load_corpus([path], roberta_tokenizer, 2, cache)
    assert tokenised == [1, 1]
    with pytest.raises(BadInput, match="expected 1"):
        load_corpus([path], bert_tokenizer, 1, cache)
    monkeypatch.setattr(data.corpus, "VERSION", data.corpus.VERSION + 1)
    load_corpus([path], bert_tokenizer, 2, cache)
    assert tokenised == [1, 1, 1]


@pytest.mark.parametrize("bad", [b"a dog\nn\xf6t\n", b"", b"one\ttwo\n"])
def test_a_bad_text_leaves_nothing_in_the_cache(bad, bert_tokenizer, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(bad)
    for _ in range(2):
        with pytest.raises(BadInput):
            load_corpus([path], bert_tokenizer, 1, tmp_path / "cache")
        assert list((tmp_path / "cache").iterdir()) == []


class Killed(BaseException):
    """Stands for the end of the process: nothing after it runs."""


@pytest.mark.parametrize("step", ["ids.npy", "offsets.npy", "facts.json", "rename"])
def test_an_interrupted_build_is_never_read(text, bert_tokenizer, tmp_path, monkeypatch, step):
    cache = tmp_path / "cache"
    grow, write, rename = data.corpus.GrowingArray, data.corpus.Path.write_text, data.corpus.Path.rename

    def stopping(name, call):
        def stopped(target, *args, **kwargs):
            if step in (name, getattr(target, "name", "")):
                if step != "rename":
                    target.write_bytes(b"\x93NUMPY half")
                raise Killed
            return call(target, *args, **kwargs)

        return stopped

    with monkeypatch.context() as patch:
        patch.setattr(data.corpus, "GrowingArray", stopping("grow", grow))
        patch.setattr(data.corpus.Path, "write_text", stopping("write", write))
        patch.setattr(data.corpus.Path, "rename", stopping("rename", rename))
        patch.setattr(data.cache.shutil, "rmtree", lambda *args, **kwargs: None)
        with pytest.raises(Killed):
            load_corpus([text], bert_tokenizer, 1, cache)
    assert len(list(cache.iterdir())) == 1, "what was half written is still there"
    corpus = load_corpus([text], bert_tokenizer, 1, cache)
    assert corpus.facts["rows"] == len(corpus) == 20


def test_of_two_builders_at_once_the_second_takes_the_first_one_s(text, bert_tokenizer, tmp_path, monkeypatch):
    """The other process finishes between the look and the rename."""
    cache, rename, built = tmp_path / "cache", data.corpus.Path.rename, []

    def late(self, target):
        if not built:
            built.append(target)
            load_corpus([text], bert_tokenizer, 1, cache)
        return rename(self, target)

    monkeypatch.setattr(data.corpus.Path, "rename", late)
    assert len(load_corpus([text], bert_tokenizer, 1, cache)) == 20
    assert list(cache.iterdir()) == built


def test_a_sentence_without_a_token_is_refused(bert_tokenizer, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a dog\n\u200b\n", encoding="utf-8")  # a blank of no width: no white space, and no token
    with pytest.raises(BadInput, match=r"row 2 of \S+text\.txt, empty .*: the tokenizer finds no token in '\\u200b'"):
        load_corpus([path], bert_tokenizer, 1, tmp_path / "cache")


def test_a_pickled_corpus_is_a_path_not_the_tokens(text, bert_tokenizer, tmp_path):
    corpus = load_corpus([text], bert_tokenizer, 1, tmp_path / "cache")
    packed = pickle.dumps(corpus)
    assert len(packed) < 500
    assert len(packed) < corpus.ids.nbytes
    again = pickle.loads(packed)
    assert np.array_equal(again.ids, corpus.ids)
    assert np.array_equal(again.offsets, corpus.offsets)
    assert isinstance(again.ids, np.memmap)
    assert again.facts == corpus.facts == json.loads((corpus.folder / "facts.json").read_text())


def test_a_pickled_corpus_keeps_offsets_of_its_own(text, bert_tokenizer, tmp_path):
    corpus = load_corpus([text], bert_tokenizer, 1, tmp_path / "cache")
    blocks = Corpus(corpus.folder, np.array([[0, 4], [4, 9]]))
    again = pickle.loads(pickle.dumps(blocks))
    assert again.offsets.tolist() == [[0, 4], [4, 9]]
    assert again.sentences([1], 0, 99)[0].tolist() == corpus.ids[4:9].tolist()


def test_a_sample_is_some_of_the_rows_with_their_labels(tmp_path):
    write_corpus(tmp_path, (([[i, i + 1]], i % 3) for i in range(50)), {})
    corpus = Corpus(tmp_path)
    few = pickle.loads(pickle.dumps(corpus.sample(corpus.sample_rows(20, 7))))
    firsts, _ = few.sentences(np.arange(20), 0, 1)
    assert len(few) == 20 and len(set(firsts.tolist())) == 20
    assert few.labels.tolist() == [i % 3 for i in firsts]
    assert firsts.tolist() != sorted(firsts.tolist())
    assert np.array_equal(corpus.sample(corpus.sample_rows(20, 7)).offsets, few.offsets)
    assert not np.array_equal(corpus.sample(corpus.sample_rows(20, 8)).offsets, few.offsets)
    for count in (0, 51):
        with pytest.raises(BadInput, match=f"--max_rows {count}: the text has 50 rows"):
            corpus.sample_rows(count, 7)
