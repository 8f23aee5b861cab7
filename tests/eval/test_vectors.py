"""Shards of vectors: written in parts, kept while they are whole, computed again if not, and refused if of others."""

import json

import numpy as np
import pytest

from eval.vectors import MANIFEST, VectorStore, quantised, stored
from tests.refusals import refused

VECTORS = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_a_shard_of_many_parts_can_be_mapped_and_read(tmp_path, dtype):
    parts = [
        np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32)
        for n in (0, 2, 0, 7, 12_345)
    ]
    store = VectorStore(tmp_path, dtype)
    assert store.write("a", parts) == (12_354, 3)
    for path, expected in zip(store.files("a"), stored(np.concatenate(parts), dtype), strict=True):
        mapped = np.load(path, mmap_mode="r")
        assert mapped.dtype == expected.dtype and np.array_equal(mapped, expected)


@pytest.mark.parametrize("width", [16, 768])
def test_int8_changes_the_direction_of_a_vector_little(width):
    """Cosine 1 - e with e about scale ** 2 / 24 / mean v ** 2: 4e-5 where max |v| is 3.5 standard deviations."""
    vectors = np.random.default_rng(0).normal(size=(500, width)).astype(np.float32)
    vectors *= np.logspace(-30, 30, 500, dtype=np.float32)[
        :, None
    ]  # a scale for each: no vector spoils another
    vectors[7] = 0
    entries, scales = quantised(vectors)
    assert (entries.dtype, entries.min() >= -127, scales.dtype, scales.shape) == (
        np.int8,
        True,
        np.float32,
        (500,),
    )
    restored = entries.astype(np.float64) * scales[:, None]
    assert (restored[7] == 0).all()
    a, b = (np.delete(matrix, 7, axis=0).astype(np.float64) for matrix in (vectors, restored))
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert 1 - cosine.min() < 1e-4
    with pytest.raises(FloatingPointError):
        stored(vectors, "float16")


def test_a_shard_is_computed_once_and_its_record_describes_it(tmp_path):
    store = VectorStore(tmp_path, "int8")
    record = store.shard("a", {"text": "x"}, lambda: [VECTORS])
    assert [record[name] for name in ("new", "rows", "width")] == [True, 9, 3]
    assert set(record["files"]) == {"a.npy", "a.scale.npy"}
    assert json.loads((tmp_path / "a.done.json").read_text()) == {
        k: v for k, v in record.items() if k != "new"
    }
    assert store.shard("a", {"text": "x"}, lambda: 1 / 0) == record | {"new": False}


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [flipped, None], ids=["a bit", "gone"])
@pytest.mark.parametrize("end", [".npy", ".scale.npy"])
def test_a_damaged_shard_is_computed_again_and_logged(tmp_path, caplog, end, damage):
    store, path = VectorStore(tmp_path, "int8"), tmp_path / f"a{end}"
    store.shard("a", {"text": "x"}, lambda: [VECTORS])
    before = path.read_bytes()
    path.write_bytes(damage(before)) if damage else path.unlink()
    assert store.shard("a", {"text": "x"}, lambda: [VECTORS])["new"] and path.read_bytes() == before
    assert "missing or changed since they were written" in caplog.text


def test_a_shard_of_another_text_is_refused(tmp_path):
    store = VectorStore(tmp_path)
    store.shard("a", {"text": "x"}, lambda: [VECTORS])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert "has vectors of another text (text x, now y)" in refused(
        store.shard, "a", {"text": "y"}, lambda: 1 / 0
    )
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_belongs_to_one_origin_and_foreign_files_are_refused(tmp_path):
    store = VectorStore(tmp_path / "new")
    store.claim({"model": "a", "max_length": 32})
    store.claim({"model": "a", "max_length": 32})
    assert json.loads((tmp_path / "new" / MANIFEST).read_text()) == {"model": "a", "max_length": 32}
    said = refused(store.claim, {"model": "a", "max_length": 64})
    assert "another origin (max_length 32, now 64)" in said
    (tmp_path / "mine.npy").touch()
    assert f"contains mine.npy, but no {MANIFEST} of vectors" in refused(
        VectorStore(tmp_path).claim, {"model": "a"}
    )
    assert not (tmp_path / MANIFEST).exists()
