"""Vectors are written in parts and mapped."""

import numpy as np
import pytest

from eval.vectors import DTYPES, blocks, read, write
from tests.refusals import refused


@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors_of_many_parts_can_be_mapped_and_read(tmp_path, dtype):
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(n, 3)).astype(np.float32) for n in (0, 2, 0, 7, 22_345)]
    assert write(tmp_path, parts, dtype) == (22_354, 3)
    stored, expected = read(tmp_path), np.concatenate(parts).astype(dtype)
    assert isinstance(stored, np.memmap) and stored.dtype == dtype
    assert np.array_equal(stored, expected)
    rows = np.concatenate([*blocks(stored)])
    assert rows.dtype == np.float32 and np.array_equal(rows, expected)


def test_an_entry_that_float16_cannot_hold_and_int8_of_an_older_version_are_refused(tmp_path):
    with pytest.raises(FloatingPointError):
        write(tmp_path, [np.full((1, 3), 1e5, dtype=np.float32)], "float16")
    np.save(tmp_path / "vectors.npy", np.ones((2, 3), dtype=np.int8))
    assert "vectors in int8 are of another version; remove" in refused(read, tmp_path)
