"""Files of word vectors: what is read, and one clear error for each thing that is not."""

import gzip
import lzma
import os

import numpy as np
import pytest
import zstandard

from baselines.words import read_word_vectors
from common.errors import BadInput
from tests.refusals import refused

GOOD = "the 0.5 -1 2e-1\ndog 1 2 3\n. . . 7 8 9\nu.s. 4 5 6 \n\u0085 1 1 1\n"
WORDS = ["the", "dog", ". . .", "u.s.", "\u0085"]
NUMBERS = [[0.5, -1, 0.2], [1, 2, 3], [7, 8, 9], [4, 5, 6], [1, 1, 1]]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, zstandard.compress])
def test_plain_and_packed_files_are_read(pack, tmp_path):
    path = tmp_path / "vectors"
    path.write_bytes(pack(GOOD.encode()))
    words, table = read_word_vectors(path, zero_rows=2)
    assert words == WORDS
    assert table.dtype == np.float32
    assert np.array_equal(table, np.array([[0, 0, 0], [0, 0, 0], *NUMBERS], dtype=np.float32))


def test_a_header_is_read_when_it_is_announced(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("5 3\n" + GOOD, encoding="utf-8")
    words, table = read_word_vectors(path, header=True)
    assert words == WORDS and np.array_equal(table, np.array(NUMBERS, dtype=np.float32))


LINES = [f"word{i} {i} 0.5 1" for i in range(9)]


def changed(line, text):
    return "\n".join([*LINES[: line - 1], text, *LINES[line:]]) + "\n"


@pytest.mark.parametrize(
    ("content", "header", "said"),
    [
        (changed(7, "word6 1 2"), False, ":7: 2 numbers, expected 3"),
        (changed(7, "word6 1 2 3 4"), False, ":7: 4 numbers, expected 3"),
        (changed(7, ""), False, ":7: 0 numbers, expected 3"),
        (changed(1, "word0"), False, ":1: 0 numbers, expected 1"),
        (changed(4, "word1 1 2 3"), False, ":4: the word 'word1' is already in line 2"),
        (changed(5, " 1 2 3"), False, ":5: no word before"),
        (changed(3, "word2 1 nan 3"), False, ":3: 'nan' is not a finite number"),
        (changed(3, "word2 1 2 -inf"), False, ":3: '-inf' is not a finite number"),
        (changed(3, "word2 1 1e39 3"), False, ":3: '1e39' is not a finite number in float32"),
        (changed(3, "word2 1 x 3"), False, ":3: 'x' is not a number"),
        (changed(3, "word2 1  3"), False, ":3: '' is not a number"),
        ("9 3\n" + "\n".join(LINES), False, ":1: '9 3' is a word2vec header; give --header"),
        ("\n".join(LINES), True, ":1: not a header of two numbers, count and dimensions; remove --header"),
        ("8 3\n" + "\n".join(LINES), True, ":1: header announces 8 words, the file has 9"),
        ("9 4\n" + "\n".join(LINES), True, ":2: 3 numbers, expected 4"),
        ("9 3\n", True, ": contains no word vectors"),
        ("", False, ": contains no word vectors"),
        (b"word \xff 1", False, ":1: byte 6 is not UTF-8"),
    ],
)
def test_a_bad_file_is_refused_by_line(content, header, said, tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    message = refused(read_word_vectors, path, header)
    assert message.startswith(str(path)) and said in message


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        read_word_vectors(tmp_path / f"none-{os.getpid()}")
