"""Token ids of a text: cached, sampled, mapped, and cut into blocks."""

import json
import os
import pickle
from collections import Counter

import numpy as np
import pytest

import data.cache
import data.text
import data.tokenised
from common.errors import BadInput, StorageError
from data import draws
from data.text import NLI_HEADER, NLI_LABELS, Reader
from data.tokenised import Sample, TokenisedText, false_negatives, in_blocks, load_tokenised, write_tokenised
from data.tokenizer import word_starts


@pytest.fixture
def tokenised(monkeypatch):
    """The number of rows of every tokenisation."""
    seen = []

    class Watched(Reader):
        def __iter__(self):
            yield from super().__iter__()
            seen.append(self.rows)

    monkeypatch.setattr(data.text, "Reader", Watched)
    return seen


@pytest.fixture
def written(tmp_path):
    def write(content):
        path = tmp_path / "text.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def text(written, sentences):
    return written("\n".join(sentences[:20]) + "\n")


@pytest.fixture
def load(bert_tokenizer, tmp_path):
    """Tokenise a file, with a cache of this test's own."""
    return lambda path, columns=1, sample=None, tokenizer=bert_tokenizer: load_tokenised(
        [path], tokenizer, columns, tmp_path / "cache", sample
    )


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_the_ids_are_the_tokenizer_s_own(tokenizer, columns, sentences, tmp_path, monkeypatch):
    monkeypatch.setattr(data.tokenised, "_ROWS_AT_ONCE", 7)  # several chunks, the last one shorter
    rows = [sentences[i : i + columns] for i in range(0, 60, columns)]
    path = tmp_path / "rows.tsv"
    path.write_text("".join("\t".join(row) + "\n\n" for row in rows), encoding="utf-8")
    corpus = load_tokenised([path], tokenizer, columns, tmp_path / "cache")
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
    write_tokenised(tmp_path, iter(rows), {"made": "by hand"})
    corpus = TokenisedText(tmp_path)
    assert corpus.ids.tolist() == [5, 6, 7, 8, 9, 10, 11, 12, 13]
    assert corpus.offsets.tolist() == [[0, 3, 4], [4, 5, 7], [7, 8, 9]]
    assert (corpus.labels.tolist(), corpus.labels.dtype) == ([1, 0, 2], np.int64)
    assert corpus.facts == {"made": "by hand", "rows": 3}


def test_the_facts_tell_what_was_read(written, load):
    path = written("\na dog\n\na river\n")
    facts = load(path).facts
    assert len(facts.pop("sha256")) == 64
    assert facts == {"columns": 1, "rows": 2, "empty_lines_dropped": 2}


def test_the_cache_is_used_again(load, text, tmp_path, tokenised):
    first = load(text)
    renamed = text.rename(tmp_path / "other.name")
    os.utime(renamed, (0, 0))
    second = load(renamed)
    assert tokenised == [20]
    assert second.folder == first.folder
    assert np.array_equal(first.ids, second.ids)


def test_the_cache_does_not_depend_on_what_the_tokenizer_did_before(load, text, bert_tokenizer, tokenised):
    for options in ({}, {"truncation": True, "max_length": 5}, {"padding": True}):
        bert_tokenizer(["a dog", "a"], **options)
        load(text)
    assert tokenised == [20]


def test_one_changed_byte_is_another_text_though_size_and_time_are_kept(load, text, tokenised):
    before = text.stat()
    first = load(text)
    content = bytearray(text.read_bytes())
    place = content.index(b"dog")
    content[place : place + 3] = b"cat"
    text.write_bytes(content)
    os.utime(text, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (text.stat().st_size, text.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    second = load(text)
    assert tokenised == [20, 20]
    assert not np.array_equal(first.ids, second.ids)


def test_tokenizer_columns_and_reader_are_part_of_the_key(written, load, roberta_tokenizer, tokenised, monkeypatch):
    path = written("a dog\ta river\n")
    load(path, 2)
    load(path, 2, tokenizer=roberta_tokenizer)
    assert tokenised == [1, 1]
    with pytest.raises(BadInput, match="expected 1"):
        load(path)
    monkeypatch.setattr(data.tokenised, "VERSION", data.tokenised.VERSION + 1)
    load(path, 2)
    assert tokenised == [1, 1, 1]


@pytest.mark.parametrize("bad", [b"a dog\nn\xf6t\n", b"", b"one\ttwo\n"])
def test_a_bad_text_leaves_nothing_in_the_cache(written, load, bad, tmp_path):
    path = written(bad)
    for _ in range(2):
        with pytest.raises(BadInput):
            load(path)
        assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("step", ["ids.npy", "offsets.npy", "facts.json", "rename"])
def test_an_interrupted_build_is_never_read(load, text, tmp_path, monkeypatch, step):
    cache = tmp_path / "cache"
    grow, write, rename = data.tokenised.GrowingArray, data.tokenised.Path.write_text, data.tokenised.Path.rename

    def stopping(name, call):
        def stopped(target, *args, **kwargs):
            if step in (name, getattr(target, "name", "")):
                if step != "rename":
                    target.write_bytes(b"\x93NUMPY half")
                raise KeyboardInterrupt
            return call(target, *args, **kwargs)

        return stopped

    with monkeypatch.context() as patch:
        patch.setattr(data.tokenised, "GrowingArray", stopping("grow", grow))
        patch.setattr(data.tokenised.Path, "write_text", stopping("write", write))
        patch.setattr(data.tokenised.Path, "rename", stopping("rename", rename))
        patch.setattr(data.cache.shutil, "rmtree", lambda *args, **kwargs: None)
        with pytest.raises(KeyboardInterrupt):
            load(text)
    assert len(list(cache.iterdir())) == 1, "what was half written is still there"
    corpus = load(text)
    assert corpus.facts["rows"] == len(corpus) == 20


def test_of_two_builders_at_once_the_second_takes_the_first_one_s(load, text, tmp_path, monkeypatch):
    """The other process finishes between the look and the rename."""
    cache, rename, built = tmp_path / "cache", data.tokenised.Path.rename, []

    def late(self, target):
        if not built:
            built.append(target)
            load(text)
        return rename(self, target)

    monkeypatch.setattr(data.tokenised.Path, "rename", late)
    assert len(load(text)) == 20
    assert list(cache.iterdir()) == built


def test_a_sentence_without_a_token_is_refused(written, load):
    path = written("a dog\n\u200b\n")  # a blank of no width: no white space, and no token
    with pytest.raises(BadInput, match=r"row 2 of \S+text\.txt, empty .*: the tokenizer finds no token in '\\u200b'"):
        load(path)


def test_a_pickled_corpus_is_a_path_not_the_tokens(load, text):
    corpus = load(text)
    packed = pickle.dumps(corpus)
    assert len(packed) < 500
    assert len(packed) < corpus.ids.nbytes
    again = pickle.loads(packed)
    assert np.array_equal(again.ids, corpus.ids)
    assert np.array_equal(again.offsets, corpus.offsets)
    assert isinstance(again.ids, np.memmap)
    assert again.facts == corpus.facts == json.loads((corpus.folder / "facts.json").read_text())


def test_a_pickled_corpus_keeps_offsets_of_its_own(load, text):
    corpus = load(text)
    blocks = TokenisedText(corpus.folder, np.array([[0, 4], [4, 9]]))
    again = pickle.loads(pickle.dumps(blocks))
    assert again.offsets.tolist() == [[0, 4], [4, 9]]
    assert again.sentences([1], 0, 99)[0].tolist() == corpus.ids[4:9].tolist()


@pytest.mark.parametrize("family", ["no file", "a cut one", "changed ids"])
def test_damaged_ids_are_made_again_and_said(load, text, caplog, tokenised, family):
    first = load(text)
    expected, path = np.array(first.ids), first.folder / "ids.npy"
    whole = path.read_bytes()
    path.unlink()
    if family != "no file":
        path.write_bytes(whole[:200] if family == "a cut one" else whole[:-20] + bytes(20))
    again = load(text)
    assert np.array_equal(again.ids, expected) and tokenised == [20, 20]
    assert [r.message for r in caplog.records if "made again" in r.message and str(first.folder) in r.message]


def test_ids_that_memory_has_no_room_for_are_a_storage_error(load, text, monkeypatch):
    load(text)

    def full(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(data.tokenised.np, "load", full)
    with pytest.raises(
        StorageError, match=r"ids\.npy: 0\.0 MB cannot be mapped into memory; raise the limit"
    ) as caught:
        load(text)
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
    corpus = load_tokenised([path], tokenizer, columns, cache, Sample(count, seed))
    width = corpus.columns
    rows = [[corpus.sentences([r], c, 99)[0].tolist() for c in range(width)] for r in range(len(corpus))]
    return rows, None if corpus.labels is None else corpus.labels.tolist(), corpus.facts


@pytest.mark.parametrize("columns", [1, 2, None])
def test_of_a_sample_the_drawn_rows_alone_are_tokenised_in_the_order_of_the_draw(
    sentences, bert_tokenizer, tmp_path, monkeypatch, encoded, columns
):
    monkeypatch.setattr(data.tokenised, "_ROWS_AT_ONCE", 7)
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
    assert facts == load_tokenised([path], bert_tokenizer, columns, tmp_path / "b").facts
    seen.clear()
    assert drawn(path, watched(bert_tokenizer), columns, tmp_path / "a", 20, 7) == (found, found_labels, facts)
    assert seen == [], "the second start reads the cache"
    assert drawn(path, bert_tokenizer, columns, tmp_path / "a", 20, 8)[0] != found
    assert drawn(path, bert_tokenizer, columns, tmp_path / "a", 19, 7)[0] == found[:19]


def test_a_pickled_sample_is_the_sample(load, text):
    corpus = load(text, sample=Sample(5, 7))
    again = pickle.loads(pickle.dumps(corpus))
    assert np.array_equal(again.offsets, corpus.offsets) and np.array_equal(again.ids, corpus.ids)


@pytest.mark.parametrize("count", [0, 21])
def test_a_sample_of_more_rows_than_there_are_is_refused(load, text, count):
    with pytest.raises(BadInput, match=f"--max_rows {count}: the text has 20 rows"):
        load(text, sample=Sample(count, 7))


def test_a_drawn_sentence_without_a_token_is_named_by_its_row_in_the_text(written, load):
    path = written("a dog\n" * 30 + "\u200b\n")
    seed = next(seed for seed in range(99) if 30 in Sample(9, seed).rows(31))
    with pytest.raises(BadInput, match=r"row 31 of \S+text\.txt, empty .*: the tokenizer finds no token"):
        load(path, sample=Sample(9, seed))


def by_hand(words, length):
    """Blocks of whole words, greedily; words is a list of lists of ids."""
    blocks = [[]]
    for word in words:
        if blocks[-1] and len(blocks[-1]) + len(word) > length:
            blocks.append([])
        while len(blocks[-1]) + len(word) > length:
            blocks[-1] += word[:length]
            word = word[length:]
            blocks.append([])
        blocks[-1] += word
    return [block for block in blocks if block]


def block_lists(corpus):
    return [corpus.ids[start:end].tolist() for start, end in corpus.offsets]


def tokenised_lines(folder, lines):
    folder.mkdir(exist_ok=True)
    write_tokenised(folder, (([line], None) for line in lines), {})
    return TokenisedText(folder)


STARTS = np.array([True] * 50 + [False] * 50)  # ids from 50 on continue a word


@pytest.mark.parametrize("length", [16, 30, 62])
def test_blocks_hold_all_tokens_in_order_and_cut_no_word(tokenizer, length, text_file, sentences, tmp_path):
    corpus = load_tokenised([text_file], tokenizer, 1, tmp_path)
    blocks = in_blocks(corpus, length, word_starts(tokenizer))
    assert np.array_equal(np.concatenate([corpus.ids[a:b] for a, b in blocks.offsets]), corpus.ids)
    lengths = np.diff(blocks.offsets, axis=1)[:, 0]
    assert 0 < lengths.min() <= lengths.max() <= length
    assert lengths.mean() > 0.7 * length
    words = []
    for sentence in sentences:
        for token, i in zip(tokenizer.tokenize(sentence), tokenizer(sentence)["input_ids"][1:-1], strict=True):
            first = not words or words[-1] is None
            starts = token.startswith("Ġ") if "Ġa" in tokenizer.get_vocab() else not token.startswith("##")
            if first and words:
                words.pop()
            if first or starts:
                words.append([])
            words[-1].append(i)
        words.append(None)
    assert block_lists(blocks) == by_hand([word for word in words if word], length)


@pytest.mark.parametrize("at_once", [1, 40, 2**22])
def test_random_words_are_packed_as_by_hand(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(data.tokenised, "_TOKENS_AT_ONCE", at_once)
    rng = np.random.default_rng(3)
    for case in range(60):
        words, lines = [], []
        for _ in range(rng.integers(1, 6)):
            line = []
            for _ in range(rng.integers(1, 8)):
                pieces = int(rng.choice([1, 1, 1, 2, 3, 6]))
                line.append([int(rng.integers(0, 50)), *rng.integers(50, 100, pieces - 1).tolist()])
            words += line
            lines.append([i for word in line for i in word])
        length = int(rng.integers(6, 15))
        blocks = in_blocks(tokenised_lines(tmp_path / str(case), lines), length, STARTS)
        assert block_lists(blocks) == by_hand(words, length)


def test_a_word_longer_than_a_block_is_cut(tmp_path):
    line = [1, 2, *range(50, 62), 3, 4]  # words of 1, 13, 1 and 1 pieces
    blocks = block_lists(in_blocks(tokenised_lines(tmp_path, [line]), 5, STARTS))
    assert [i for block in blocks for i in block] == line
    assert max(map(len, blocks)) <= 5
    assert blocks[0] == [1], "the block ends at the last word that fits"
    assert blocks[-1][-2:] == [3, 4]


def test_one_word_longer_than_everything_ends_too(tmp_path):
    line = [1, *range(50, 60)]
    assert list(map(len, block_lists(in_blocks(tokenised_lines(tmp_path, [line]), 4, STARTS)))) == [4, 4, 3]


@pytest.mark.parametrize("tokens", [1, 5, 6])
def test_one_short_line_is_one_block(tmp_path, tokens):
    assert block_lists(in_blocks(tokenised_lines(tmp_path, [list(range(tokens))]), 6, STARTS)) == [list(range(tokens))]


def test_a_line_begins_a_word_whatever_its_first_token_looks_like(tmp_path):
    corpus = tokenised_lines(tmp_path, [[1, 2, 3], [60, 4, 5]])
    assert block_lists(in_blocks(corpus, 4, STARTS)) == [[1, 2, 3, 60], [4, 5]]
    corpus = tokenised_lines(tmp_path, [[1, 2, 3], [60, 61, 4]])
    assert block_lists(in_blocks(corpus, 4, STARTS)) == [[1, 2, 3], [60, 61, 4]]


@pytest.mark.parametrize("length", [0, -5])
def test_a_block_without_room_is_refused(tmp_path, length):
    with pytest.raises(BadInput, match="no room"):
        in_blocks(tokenised_lines(tmp_path, [[1, 2, 3]]), length, STARTS)


@pytest.mark.parametrize(("batch", "longest"), [(4, 32), (7, 32), (7, 2), (1, 32), (100, 32)])
def test_sentences_that_share_a_batch_with_an_equal_one_are_counted(tmp_path, batch, longest):
    rng = np.random.default_rng(3)
    rows = [[rng.integers(1, 4, rng.integers(1, 4)).tolist()] for _ in range(60)]
    rows += [[[1, 2]], [[2, 1]], [[1, 2, 0]]]
    write_tokenised(tmp_path, ((row, None) for row in rows), {})
    order, size = draws.permutation(5, 0, 63), min(batch, 63)
    expected = 0
    for start in range(0, 63 // size * size, size):
        seen = Counter(tuple(rows[i][0][:longest]) for i in order[start : start + size])
        expected += sum(count for count in seen.values() if count > 1)
    assert false_negatives(TokenisedText(tmp_path), draws.KeyedSampler(5, 63, batch), longest) == (
        expected,
        63 // size * size,
    )
    assert expected > 0 or batch == 1


def test_distinct_sentences_are_none(tmp_path):
    write_tokenised(tmp_path, (([[1 + row % 50, 1 + row // 50]], None) for row in range(500)), {})
    assert false_negatives(TokenisedText(tmp_path), draws.KeyedSampler(5, 500, 100), 32)[0] == 0
