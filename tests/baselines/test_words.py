"""Word vectors: read from a file, averaged, refused in a line."""

import gzip

import numpy as np
import pytest

from baselines.words import averaged, read_words
from tests.refusals import refused


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("header", ["", "3 2\n"])
def test_a_sentence_has_the_mean_of_its_known_words(pack, header, tmp_path):
    path = tmp_path / ("vectors.gz" if pack is gzip.compress else "vectors")
    path.write_bytes(pack(f"{header}the 9 9\ndog 1 2\nParis 3 0\n".encode()))
    encode = averaged(read_words(path))
    vectors = encode(["The dog!", "dog, Paris zebra", "PARIS", "zebra", "", "dog"])
    expected = [[1, 2], [2, 1], [0, 0], [0, 0], [0, 0], [1, 2]]
    assert vectors.dtype == np.float32 and np.allclose(vectors, expected)
    assert not encode(["zebra", ""]).any()


@pytest.mark.parametrize("content", ["", "dog one two\n", b"dog \xff 1\n"])
def test_another_kind_of_file_is_refused(content, tmp_path):
    path = tmp_path / "vectors.txt"
    assert "no such file" in refused(read_words, path)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert refused(read_words, path).startswith(f"{path}: not lines of a word")
