import json
import os
import pickle

import numpy as np
import pytest

import data.cache
import data.corpus
import data.labelled
from common.errors import BadInput, StorageError
from data import draws
from data.corpus import Corpus, Sample, load_corpus, write_corpus
from data.labelled import NLI_LABELS
from data.reader import NLI_HEADER, Reader


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


@pytest.mark.parametrize("family", ["no file", "a cut one", "changed ids"])
def test_damaged_ids_are_made_again_and_said(text, bert_tokenizer, tmp_path, caplog, tokenised, family):
    first = load_corpus([text], bert_tokenizer, 1, tmp_path / "cache")
    expected, path = np.array(first.ids), first.folder / "ids.npy"
    whole = path.read_bytes()
    path.unlink()
    if family != "no file":
        path.write_bytes(whole[:200] if family == "a cut one" else whole[:-20] + bytes(20))
    again = load_corpus([text], bert_tokenizer, 1, tmp_path / "cache")
    assert np.array_equal(again.ids, expected) and tokenised == [20, 20]
    assert [r.message for r in caplog.records if "made again" in r.message and str(first.folder) in r.message]


def test_ids_that_memory_has_no_room_for_are_a_storage_error(text, bert_tokenizer, tmp_path, monkeypatch):
    load_corpus([text], bert_tokenizer, 1, tmp_path / "cache")

    def full(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(data.corpus.np, "load", full)
    with pytest.raises(
        StorageError, match=r"ids\.npy: 0\.0 MB cannot be mapped into memory; raise the limit"
    ) as caught:
        load_corpus([text], bert_tokenizer, 1, tmp_path / "cache")
    assert caught.value.exit_code == 4


@pytest.fixture
def encoded(monkeypatch):
    """The sentences that were tokenised."""
    seen = []

    class Watched:
        def __init__(self, tokenizer):
            self.backend_tokenizer, self._backend = self, tokenizer.backend_tokenizer

        def __getattr__(self, name):
            return getattr(self._backend, name)

        def encode_batch_fast(self, sentences, **options):
            seen.extend(sentences)
            return self._backend.encode_batch_fast(sentences, **options)

    return Watched, seen


def drawn(path, tokenizer, columns, cache, count, seed):
    corpus = load_corpus([path], tokenizer, columns, cache, Sample(count, seed))
    width = corpus.columns
    rows = [[corpus.sentences([r], c, 99)[0].tolist() for c in range(width)] for r in range(len(corpus))]
    return rows, None if corpus.labels is None else corpus.labels.tolist(), corpus.facts


@pytest.mark.parametrize("columns", [1, 2, None])
def test_of_a_sample_the_drawn_rows_alone_are_tokenised_in_the_order_of_the_draw(
    sentences, bert_tokenizer, tmp_path, monkeypatch, encoded, columns
):
    monkeypatch.setattr(data.corpus, "_ROWS_AT_ONCE", 7)
    rows = [[*sentences[i : i + (columns or 2)]] for i in range(50)]
    labels = [i % 3 for i in range(50)]
    lines = [NLI_HEADER, *([*row, NLI_LABELS[i]] for i, row in zip(labels, rows, strict=True))]
    path = tmp_path / "rows.tsv"
    path.write_text("".join("\t".join(line) + "\n\n" for line in (rows if columns else lines)), encoding="utf-8")
    watched, seen = encoded
    found, found_labels, facts = drawn(path, watched(bert_tokenizer), columns, tmp_path / "a", 20, 7)
    expected = draws.permutation(7, 0, 50, "sample")[:20]
    assert sorted(seen) == sorted(text for row in expected for text in rows[row])
    assert found == [bert_tokenizer(rows[row], add_special_tokens=False)["input_ids"] for row in expected]
    assert found_labels == (None if columns else [labels[row] for row in expected])
    assert facts == load_corpus([path], bert_tokenizer, columns, tmp_path / "b").facts
    seen.clear()
    assert drawn(path, watched(bert_tokenizer), columns, tmp_path / "a", 20, 7) == (found, found_labels, facts)
    assert seen == [], "the second start reads the cache"
    assert drawn(path, bert_tokenizer, columns, tmp_path / "a", 20, 8)[0] != found
    assert drawn(path, bert_tokenizer, columns, tmp_path / "a", 19, 7)[0] == found[:19]


def test_a_pickled_sample_is_the_sample(text, bert_tokenizer, tmp_path):
    corpus = load_corpus([text], bert_tokenizer, 1, tmp_path / "cache", Sample(5, 7))
    again = pickle.loads(pickle.dumps(corpus))
    assert np.array_equal(again.offsets, corpus.offsets) and np.array_equal(again.ids, corpus.ids)


@pytest.mark.parametrize("count", [0, 21])
def test_a_sample_of_more_rows_than_there_are_is_refused(text, bert_tokenizer, tmp_path, count):
    with pytest.raises(BadInput, match=f"--max_rows {count}: the text has 20 rows"):
        load_corpus([text], bert_tokenizer, 1, tmp_path / "cache", Sample(count, 7))


def test_a_drawn_sentence_without_a_token_is_named_by_its_row_in_the_text(bert_tokenizer, tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a dog\n" * 30 + "\u200b\n", encoding="utf-8")
    seed = next(seed for seed in range(99) if 30 in Sample(9, seed).rows(31))
    with pytest.raises(BadInput, match=r"row 31 of \S+text\.txt, empty .*: the tokenizer finds no token"):
        load_corpus([path], bert_tokenizer, 1, tmp_path / "cache", Sample(9, seed))
