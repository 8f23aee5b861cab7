import numpy as np
import pytest

from data.masking import choose_words, corrupt
from data.views import IGNORED

RNG = np.random.default_rng


def words_by_hand(text, special, starts, rate, uniform):
    """What is chosen of a row, and how many are missing."""
    words = []
    for position in range(len(text)):
        if text[position]:
            if not words or starts[position] or special[position] or special[position - 1]:
                words.append([])
            words[-1].append(position)
    n = sum(map(len, words))
    left, chosen = max(1, round(rate * n)), set()
    for word in sorted(words, key=lambda word: uniform[word[0]]):
        if len(word) <= left and not special[word[0]]:
            chosen |= set(word)
            left -= len(word)
    words = [word for word in words if not special[word[0]]]
    if words and not chosen:
        return {*min(words, key=lambda word: uniform[word[0]])[:left]}, 0
    return chosen, left


@pytest.mark.parametrize("rate", [0.0, 0.15, 0.4, 1.0])
def test_whole_words_equal_a_loop_in_plain_python(rate):
    rng = RNG(1)
    rows, length = 400, 24
    starts = rng.random((rows, length)) < 0.6
    ends = rng.integers(1, length, rows)
    position = np.arange(length)
    text = (position > 0) & (position < ends[:, None])  # rows of 0 to 22 tokens
    special = rng.random((rows, length)) < 0.1
    special[1::2] = special[:, 0] = False
    uniform = rng.random((rows, length))
    chosen = choose_words(text, special, starts, rate, uniform)
    exact = 0
    for row in range(rows):
        arguments = text[row], special[row], starts[row], rate, uniform[row]
        expected, left = words_by_hand(*arguments)
        assert set(np.flatnonzero(chosen[row]).tolist()) == expected
        exact += left == 0 and row % 2
    assert exact > 0.8 * (ends[1::2] > 1).sum(), "the number is exact but for words that do not fit"


@pytest.mark.parametrize("words", [[30], [12, 18], [1, 29]])
def test_a_text_whose_words_are_all_too_long_is_masked_too(words):
    """Of 30 tokens 4 are chosen, of a single word; a special token is no word that fits."""
    text, special, starts = (np.zeros((1, 32), dtype=bool) for _ in range(3))
    text[0, 1:31] = True
    starts[0, 1 + np.cumsum([0, *words[:-1]])] = True
    special[0, [0, 31]] = True
    special[0, 1] = words[0] == 1
    for seed in range(5):
        uniform = RNG(seed).random((1, 32))
        positions = np.flatnonzero(choose_words(text, special, starts, 0.15, uniform))
        assert len(positions) == 4 and (np.diff(positions) == 1).all()
        assert positions[0] in np.flatnonzero(starts | special)


def test_the_bounds_of_the_scheme():
    below = np.nextafter([0.8, 0.9, 1], 0)  # the numbers before these
    uniform = np.array([[0.0, below[0], 0.8, below[1], 0.9, below[2], 0.0, 0.8]])
    ids, chosen = np.full((1, 8), 3), np.array([[True] * 6 + [False] * 2])
    masked, labels = corrupt(ids, chosen, "bert", 9, 10, uniform)
    assert labels.tolist() == [[3] * 6 + [IGNORED] * 2]
    assert masked[0, [0, 1, 4, 5, 6, 7]].tolist() == [9, 9, 3, 3, 3, 3]
    assert masked[0, 2] == 0, "the lowest number draws the first token"
    assert masked[0, 3] in (9, 0), "the highest the last one, or by rounding the first"
    assert (ids == 3).all(), "the original is left alone"
