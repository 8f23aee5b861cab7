import numpy as np
import pytest

import data.blocks
from common.errors import BadInput
from data.blocks import packed
from data.corpus import Corpus, load_corpus, write_corpus
from data.masking import word_starts


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


def corpus_of(folder, lines):
    folder.mkdir(exist_ok=True)
    write_corpus(folder, (([line], None) for line in lines), {})
    return Corpus(folder)


STARTS = np.array([True] * 50 + [False] * 50)  # ids from 50 on continue a word


@pytest.mark.parametrize("family", ["bert_tokenizer", "roberta_tokenizer"])
@pytest.mark.parametrize("length", [16, 30, 62])
def test_blocks_hold_all_tokens_in_order_and_cut_no_word(request, family, length, text_file, sentences, tmp_path):
    tokenizer = request.getfixturevalue(family)
    corpus = load_corpus([text_file], tokenizer, 1, tmp_path)
    blocks = packed(corpus, length, word_starts(tokenizer))
    assert np.array_equal(np.concatenate([corpus.ids[a:b] for a, b in blocks.offsets]), corpus.ids)
    lengths = np.diff(blocks.offsets, axis=1)[:, 0]
    assert 0 < lengths.min() <= lengths.max() <= length
    assert lengths.mean() > 0.7 * length
    words = []
    for sentence in sentences:
        for token, i in zip(tokenizer.tokenize(sentence), tokenizer(sentence)["input_ids"][1:-1], strict=True):
            first = not words or words[-1] is None
            starts = not token.startswith("##") if family == "bert_tokenizer" else token.startswith("Ġ")
            if first and words:
                words.pop()
            if first or starts:
                words.append([])
            words[-1].append(i)
        words.append(None)
    assert block_lists(blocks) == by_hand([word for word in words if word], length)


@pytest.mark.parametrize("at_once", [1, 40, 2**22])
def test_random_words_are_packed_as_by_hand(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(data.blocks, "_TOKENS_AT_ONCE", at_once)
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
        blocks = packed(corpus_of(tmp_path / str(case), lines), length, STARTS)
        assert block_lists(blocks) == by_hand(words, length)


def test_a_word_longer_than_a_block_is_cut(tmp_path):
    line = [1, 2, *range(50, 62), 3, 4]  # words of 1, 13, 1 and 1 pieces
    blocks = block_lists(packed(corpus_of(tmp_path, [line]), 5, STARTS))
    assert [i for block in blocks for i in block] == line
    assert max(map(len, blocks)) <= 5
    assert blocks[0] == [1], "the block ends at the last word that fits"
    assert blocks[-1][-2:] == [3, 4]


def test_one_word_longer_than_everything_ends_too(tmp_path):
    line = [1, *range(50, 60)]
    assert list(map(len, block_lists(packed(corpus_of(tmp_path, [line]), 4, STARTS)))) == [4, 4, 3]


@pytest.mark.parametrize("tokens", [1, 5, 6])
def test_one_short_line_is_one_block(tmp_path, tokens):
    assert block_lists(packed(corpus_of(tmp_path, [list(range(tokens))]), 6, STARTS)) == [list(range(tokens))]


def test_a_line_begins_a_word_whatever_its_first_token_looks_like(tmp_path):
    corpus = corpus_of(tmp_path, [[1, 2, 3], [60, 4, 5]])
    assert block_lists(packed(corpus, 4, STARTS)) == [[1, 2, 3, 60], [4, 5]]
    corpus = corpus_of(tmp_path, [[1, 2, 3], [60, 61, 4]])
    assert block_lists(packed(corpus, 4, STARTS)) == [[1, 2, 3], [60, 61, 4]]


@pytest.mark.parametrize("length", [0, -5])
def test_a_block_without_room_is_refused(tmp_path, length):
    with pytest.raises(BadInput, match="no room"):
        packed(corpus_of(tmp_path, [[1, 2, 3]]), length, STARTS)
