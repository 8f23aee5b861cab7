"""Files of word vectors: what is read, and one clear error for each thing that is not."""

import gzip
import lzma

import numpy as np
import pytest
import zstandard

from baselines.words import learn_word_vectors, read_word_vectors
from tests.refusals import refused

GOOD = "the 0.5 -1 2e-1\ndog 1 2 3\n. . . 7 8 9\nu.s. 4 5 6 \n\u0085 1 1 1\n"
WORDS = ["the", "dog", ". . .", "u.s.", "\u0085"]
NUMBERS = [[0.5, -1, 0.2], [1, 2, 3], [7, 8, 9], [4, 5, 6], [1, 1, 1]]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, zstandard.compress])
@pytest.mark.parametrize("header", ["", "5 3\n"])
def test_plain_and_packed_files_are_read_with_and_without_a_header(pack, header, tmp_path):
    path = tmp_path / "vectors"
    path.write_bytes(pack(f"{header}{GOOD}".encode()))
    words, table = read_word_vectors(path, zero_rows=2)
    assert words == WORDS
    assert table.dtype == np.float32
    assert np.array_equal(table, np.array([[0, 0, 0], [0, 0, 0], *NUMBERS], dtype=np.float32))


def slow_ppmi(sentences, words, window=5):
    """Positive pointwise mutual information with a smoothed context, one pair of words at a time."""
    pairs = {}
    for sentence in sentences:
        for i, left in enumerate(sentence):
            for j, right in enumerate(sentence):
                if i != j and abs(i - j) <= window:
                    pairs[left, right] = pairs.get((left, right), 0) + 1
    total = {word: sum(n for (left, _), n in pairs.items() if left == word) for word in words}
    smooth = sum(n**0.75 for n in total.values())
    table = np.zeros((len(words), len(words)))
    for (left, right), n in pairs.items():
        chance = total[left] * total[right] ** 0.75 / smooth
        table[words.index(left), words.index(right)] = max(0, np.log(n / chance))
    return table


def test_learnt_vectors_are_those_of_a_slow_loop():
    rng = np.random.default_rng(1)
    names = [f"w{number}" for number in range(12)]
    sentences = [
        [names[i] for i in rng.choice(12, 9, p=np.arange(12, 0, -1) / 78)] for _ in range(60)
    ]
    texts = [f"{' '.join(sentence)} Rare{number}." for number, sentence in enumerate(sentences)]
    texts[0] = f"'{texts[0].capitalize()}"
    file = learn_word_vectors(texts, 2)
    assert {*file.words} == {*names}, "in lower case, without punctuation, and none that is rare"
    assert file.table.shape == (14, 11) and not file.table[:2].any()
    left, scale, _ = np.linalg.svd(slow_ppmi(sentences, file.words))
    expected = (left[:, :11] * scale[:11]) @ left[:, :11].T
    assert np.allclose(file.table[2:] @ file.table[2:].T, expected, atol=1e-4)
    assert "too few" in refused(learn_word_vectors, ["one two", "three four"])


LINES = [f"word{i} {i} 0.5 1" for i in range(9)]


def changed(line, text):
    return "\n".join([*LINES[: line - 1], text, *LINES[line:]]) + "\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (changed(7, "word6 1 2"), ":7: expected a new word and 3 finite numbers"),
        (changed(7, ""), ":7: expected"),
        (changed(4, "word1 1 2 3"), ":4: expected a new word"),
        (changed(3, "word2 1 nan 3"), ":3: expected"),
        (changed(3, "word2 1 1e39 3"), ":3: expected"),
        ("8 3\n" + "\n".join(LINES), ": has 9 words, its first line says 8"),
        ("9 4\n" + "\n".join(LINES), ":2: expected a new word and 4"),
        ("", ": has 0 words"),
        (b"word \xff 1", ":1: 'utf-8' codec"),
    ],
)
def test_a_bad_file_is_refused_by_line(content, said, tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    message = refused(read_word_vectors, path)
    assert message.startswith(str(path)) and said in message
