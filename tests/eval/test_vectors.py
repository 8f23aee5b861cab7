"""Vectors are written in parts and mapped; int8 keeps their directions."""

import numpy as np
import pytest

from eval.vectors import DTYPES, Vectors, quantised, write


@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors_of_many_parts_can_be_mapped_and_read(tmp_path, dtype):
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(n, 3)).astype(np.float32) for n in (0, 2, 0, 7, 22_345)]
    assert write(tmp_path, parts, dtype) == (22_354, 3)
    whole = np.concatenate(parts)
    for column, expected in zip(Vectors.read(tmp_path), Vectors.of(whole, dtype), strict=True):
        assert (column is None) == (expected is None)
        if column is not None:
            assert isinstance(column, np.memmap) and column.dtype == expected.dtype
            assert np.array_equal(column, expected)
    rows = np.concatenate([*Vectors.read(tmp_path).rows()])
    assert rows.dtype == np.float32 and np.abs(rows - whole).max() < 0.02


@pytest.mark.parametrize("width", [16, 768])
def test_int8_changes_the_direction_of_a_vector_little(width):
    """Cosine 1 - e, e = scale ** 2 / 24 / mean v ** 2: 4e-5 where max |v| is 3.5 deviations."""
    vectors = np.random.default_rng(0).normal(size=(500, width)).astype(np.float32)
    lengths = np.logspace(-30, 30, 500, dtype=np.float32)  # no vector spoils another
    vectors *= lengths[:, None]
    vectors[7] = 0
    entries, scales = quantised(vectors)
    assert (entries.dtype, scales.dtype, scales.shape) == (np.int8, np.float32, (500,))
    assert entries.min() >= -127
    restored = entries.astype(np.float64) * scales[:, None]
    assert (restored[7] == 0).all()
    a, b = (np.delete(matrix, 7, axis=0).astype(np.float64) for matrix in (vectors, restored))
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert 1 - cosine.min() < 1e-4
    with pytest.raises(FloatingPointError):
        Vectors.of(vectors, "float16")
