"""Shards written in pieces."""

import numpy as np
import pytest

from eval.vectors.store import VectorStore, stored


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_a_numpy_shard_of_many_pieces_can_be_mapped(tmp_path, dtype):
    pieces = [np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32) for n in (0, 2, 0, 7, 12_345)]
    store = VectorStore(tmp_path, "npy", dtype)
    assert store.write("a", pieces) == (12_354, 3)
    for path, expected in zip(store.files("a"), stored(np.concatenate(pieces), dtype), strict=True):
        found = np.load(path, mmap_mode="r")
        assert found.dtype == expected.dtype and np.array_equal(found, expected)


def stopped():
    yield np.zeros((2, 3), np.float32)
    raise KeyboardInterrupt


@pytest.mark.parametrize("layout", ["npy", "parquet"])
def test_pieces_of_two_widths_and_a_stop_leave_no_shard(tmp_path, layout):
    store = VectorStore(tmp_path, layout)
    with pytest.raises(ValueError, match="vectors of width 4 after vectors of width 3"):
        store.write("a", [np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32)])
    with pytest.raises(KeyboardInterrupt):
        store.write("a", stopped())
    assert list(tmp_path.iterdir()) == []
