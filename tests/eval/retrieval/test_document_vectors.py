import json

import numpy as np
import pytest

from eval.retrieval.beir import embedded
from eval.retrieval.beir_files import read_corpus
from eval.vectors.store import MANIFEST
from tests.eval.letters import Letters
from tests.refusals import refused


def filled(encode, corpus, folder, size=7, width=6):
    with embedded(encode, corpus, width, folder, size) as shards:
        return np.concatenate([np.array(block) for _, block in shards.blocks()])


@pytest.fixture
def corpus(beir):
    return read_corpus(beir.folder / "corpus.jsonl")


@pytest.mark.parametrize("size", [1, 7, 40, 100])
def test_every_document_has_its_vector(beir, corpus, tmp_path, size):
    expected = Letters()(beir.texts())
    assert (filled(Letters(), corpus, tmp_path / "kept", size) == expected).all()
    assert (filled(Letters(), corpus, None, size) == expected).all()
    names = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert names == [MANIFEST, *(f"shard-{i:05}.{end}" for i in range(-(-40 // size)) for end in ("json", "npy"))]


def test_blocks_say_where_they_start_and_are_mapped(corpus, tmp_path):
    with embedded(Letters(), corpus, 6, tmp_path / "kept", 16) as shards:
        blocks = list(shards.blocks())
    assert [(start, block.shape) for start, block in blocks] == [(0, (16, 6)), (16, (16, 6)), (32, (8, 6))]
    assert all(isinstance(block, np.memmap) and block.dtype == np.float32 for _, block in blocks)


def test_without_a_folder_nothing_stays(corpus):
    with embedded(Letters(), corpus, 6, None, 7) as shards:
        folder = shards.store.folder
        assert len(list(folder.glob("*.npy"))) == 6
    assert not folder.exists()


def test_a_stopped_run_computes_only_what_is_missing(beir, corpus, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        filled(Letters(stop_after=20), corpus, tmp_path / "kept")
    (tmp_path / "kept" / "shard-00002.npy.0123abcd.part").write_bytes(b"half a shard")  # as a kill leaves it
    again = Letters()
    assert (filled(again, corpus, tmp_path / "kept") == Letters()(beir.texts())).all()
    assert again.asked == beir.texts()[14:] and not list((tmp_path / "kept").glob("*.part"))
    nothing = Letters(stop_after=0)
    filled(nothing, corpus, tmp_path / "kept")
    assert nothing.asked == []


def test_a_folder_of_something_else_is_refused_with_the_difference(beir, corpus, tmp_path):
    kept = tmp_path / "kept"
    filled(Letters(), corpus, kept)
    other = Letters()
    other.identity = "others"
    assert "(model letters, now others)" in refused(filled, other, corpus, kept)
    other.identity, other.max_length = "letters", 64
    assert "(max_length 32, now 64)" in refused(filled, other, corpus, kept)
    assert "(shard_size 7, now 8)" in refused(filled, Letters(), corpus, kept, size=8)
    beir.documents["d7"] = "another text"
    beir.write()
    changed = read_corpus(corpus.path)
    assert f"(corpus {corpus.sha256}, now {changed.sha256})" in refused(filled, Letters(), changed, kept)
    del beir.documents["d39"]
    beir.write()
    assert "documents 40, now 39" in refused(filled, Letters(), read_corpus(corpus.path), kept)
    assert other.asked == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (np.zeros((7, 6), np.float32), "shard-00002.npy has changed since it was written"),
        (b"", "shard-00002.npy has changed since it was written"),
        (-5, "shard-00002.npy has changed since it was written"),
    ],
)
def test_a_damaged_shard_is_refused_before_anything_is_computed(corpus, tmp_path, wrong, said):
    filled(Letters(), corpus, tmp_path / "kept")
    (tmp_path / "kept" / "shard-00001.npy").unlink()
    path = tmp_path / "kept" / "shard-00002.npy"
    if isinstance(wrong, np.ndarray):
        np.save(path, wrong)
    else:
        path.write_bytes(path.read_bytes()[:wrong] if isinstance(wrong, int) else wrong)
    again = Letters()
    message = refused(filled, again, corpus, tmp_path / "kept")
    assert said in message and f"remove {path.with_suffix('.json')}" in message
    assert again.asked == []


def test_a_folder_that_cannot_be_written_is_named(corpus, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written (" in refused(filled, Letters(), corpus, tmp_path / "file" / "kept")


def test_the_manifest_describes_the_vectors(corpus, tmp_path):
    filled(Letters(), corpus, tmp_path / "kept")
    found = json.loads((tmp_path / "kept" / MANIFEST).read_text())
    assert found == {"corpus": corpus.sha256, "documents": 40, "model": "letters", "max_length": 32, "shard_size": 7}
