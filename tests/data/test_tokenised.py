"""Token ids of a text: cached, sampled, mapped, and cut into blocks."""

import os
from itertools import chain

import numpy as np
import pytest

import data.source
import data.tokenised
from data import draws
from data.source import Source
from data.text import NLI_LABELS
from data.tokenised import Sample, cut, load_tokenised
from data.tokenizer import word_starts
from tests.data.conftest import written
from tests.refusals import refused


@pytest.fixture
def tokenised(monkeypatch):
    """The number of rows of every tokenisation."""
    seen, encoded = [], data.tokenised._encoded

    def watched(source, tokenizer, rows, *more):
        seen.append(len(rows))
        return encoded(source, tokenizer, rows, *more)

    monkeypatch.setattr(data.tokenised, "_encoded", watched)
    return seen


@pytest.fixture
def few(monkeypatch):
    """Several chunks of seven rows, the last one shorter."""
    for module in ("text", "tokenised"):
        monkeypatch.setattr(f"data.{module}.ROWS_AT_ONCE", 7)


@pytest.fixture
def text(sentences, tmp_path):
    return written(tmp_path, "\n".join(sentences[:20]) + "\n")


@pytest.fixture
def load(bert_tokenizer, tmp_path):
    """Tokenise a file, with a cache of this test's own."""
    return lambda path, columns=1, sample=None, tokenizer=bert_tokenizer, block=None: (
        load_tokenised(Source((path,), columns), tokenizer, tmp_path / "cache", sample, block)
    )


def lists(corpus, column=0):
    return [corpus.sentences([row], column, 10**6)[0].tolist() for row in range(len(corpus))]


def test_a_text_is_tokenised_again_if_its_bytes_change(load, text, tmp_path, tokenised):
    first, before = load(text), text.stat()
    renamed = text.rename(tmp_path / "other.name")
    os.utime(renamed, (0, 0))
    assert load(renamed).folder == first.folder and tokenised == [20]
    text.write_bytes(renamed.read_bytes().replace(b"dog", b"cat", 1))
    os.utime(text, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert text.stat().st_size == before.st_size
    assert lists(load(text)) != lists(first) and tokenised == [20, 20]


def test_tokenizer_and_columns_are_keys(tmp_path, load, roberta_tokenizer, tokenised, monkeypatch):
    path = written(tmp_path, "a dog\ta river\n")
    load(path, 2)
    load(path, 2, tokenizer=roberta_tokenizer)
    assert tokenised == [1, 1]
    refused(load, path, match="expected 1")
    monkeypatch.setattr(data.source, "VERSION", data.source.VERSION + 1)
    load(path, 2)
    assert tokenised == [1, 1, 1]


def test_a_sentence_without_a_token_is_refused(tmp_path, load):
    path = written(tmp_path, "a dog\n\u0301\n")  # an accent alone: a character, but no token
    refused(load, path, match=r"text\.txt: row 2 .*: the tokenizer finds no token")


@pytest.mark.parametrize("labelled", [False, True])
def test_drawn_rows_are_tokenised(sentences, bert_tokenizer, tmp_path, few, labelled, tokenised):
    rows, labels = [sentences[i : i + 2] for i in range(50)], [i % 3 for i in range(50)]
    lines = rows
    if labelled:
        named = [[*row, NLI_LABELS[i]] for i, row in zip(labels, rows, strict=True)]
        lines = [["premise", "hypothesis", "label"], *named]
    path = written(tmp_path, "".join("\t".join(line) + "\n\n" for line in lines))
    source = Source((path,), 1 if labelled else 2, labelled=labelled)

    def drawn(*sample):
        read = Sample(*sample) if sample else None
        corpus = load_tokenised(source, bert_tokenizer, tmp_path / "cache", read)
        of_label = None if corpus.labels is None else corpus.labels.tolist()
        lengths = corpus.lengths(range(len(corpus)), 1).tolist()
        assert lengths == [*map(len, lists(corpus, 1))]
        return [*zip(lists(corpus, 0), lists(corpus, 1), strict=True)], of_label, corpus.facts

    order = draws.permutation(7, 0, 50, "sample")[:20]
    ids, of_label, facts = drawn(20, 7)
    for row, pair in zip(order, ids, strict=True):
        assert [*pair] == bert_tokenizer(rows[row], add_special_tokens=False)["input_ids"]
    assert of_label == ([labels[row] for row in order] if labelled else None)
    assert drawn(20, 7) == (ids, of_label, facts) and tokenised == [20], "the cache is read"
    assert drawn()[2] == facts
    assert drawn(20, 8)[0] != ids and drawn(19, 7)[0] == ids[:19]


def test_an_upsampled_sample_has_the_size_of_the_text_again():
    """As `train_samples * int(1.0 / data_proportion)` in ConSERT's main.py."""
    for count, times in ((1, 20), (3, 6), (20, 1)):
        drawn = Sample(count, 7).rows(20).tolist()
        assert Sample(count, 7, repeated=True).rows(20).tolist() == drawn * times


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"sample": Sample(0, 7)}, "--max_rows 0: the text has 20 rows"),
        ({"sample": Sample(21, 7)}, "--max_rows 21: the text has 20 rows"),
        ({"block": 0}, "no room"),
        ({"block": -5}, "no room"),
    ],
)
def test_a_sample_and_a_block_that_cannot_be_are_refused(load, text, how, said):
    refused(load, text, match=said, **how)


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


@pytest.mark.parametrize("length", [16, 30, 62])
def test_blocks_hold_all_tokens_in_order_and_cut_no_word(tokenizer, length, text_file, load, few):
    lines = [line for line in text_file.read_text().splitlines() if line.strip()]
    running = [tokenizer(f" {line}", add_special_tokens=False)["input_ids"] for line in lines]
    blocks = lists(load(text_file, tokenizer=tokenizer, block=length))
    assert [*chain(*blocks)] == [*chain(*running)]
    assert max(map(len, blocks)) <= length and np.mean([*map(len, blocks)]) > 0.7 * length
    starts = word_starts(tokenizer)
    assert all(starts[ids[0]] for ids in [*blocks, *running])


def blocks_of(words, length):
    flat, starts = [*chain(*words)], np.cumsum([0, *map(len, words[:-1])])
    ends = cut(starts, len(flat), length)
    return [flat[a:b] for a, b in zip(ends, [*ends[1:], len(flat)], strict=True)]


def test_words_are_packed_as_by_hand_and_longer_ones_cut():
    rng = np.random.default_rng(3)
    for _ in range(300):
        words = [[*range(rng.choice([1, 1, 1, 2, 3, 6]))] for _ in range(rng.integers(1, 40))]
        length = int(rng.integers(6, 15))
        assert blocks_of(words, length) == by_hand(words, length)
    made = blocks_of([[1], [2, *range(50, 62)], [3]], 5)
    assert made == [[1], [2, *range(50, 54)], [*range(54, 59)], [*range(59, 62), 3]]
    assert [*map(len, blocks_of([[*range(11)]], 4))] == [4, 4, 3]
    assert [*map(len, blocks_of([[*range(6)]], 6))] == [6]
