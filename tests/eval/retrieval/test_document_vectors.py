"""The vectors of a corpus in shards, in a folder or a temporary one."""

import numpy as np
import pytest

from eval.retrieval.beir import embedded
from eval.retrieval.beir_files import read_corpus
from tests.eval.toys import Letters
from tests.refusals import refused


def filled(encode, corpus, folder, size=7):
    with embedded(encode, corpus, folder, size) as blocks:
        return np.concatenate([np.array(block) for _, block in blocks()])


@pytest.fixture
def corpus(beir):
    return read_corpus(beir.folder / "corpus.jsonl")


@pytest.mark.parametrize("size", [7, 40, 100])
def test_every_document_has_its_vector(beir, corpus, tmp_path, size):
    expected = Letters()(beir.texts())
    assert (filled(Letters(), corpus, tmp_path / "kept", size) == expected).all()
    assert (filled(Letters(), corpus, None, size) == expected).all()
    names = sorted(path.name for path in (tmp_path / "kept").iterdir())
    assert names == [f"shard-{i:05}" for i in range(-(-40 // size))]


def test_a_folder_of_another_model_size_or_corpus_is_refused_with_the_difference(
    beir, corpus, tmp_path
):
    kept = tmp_path / "kept"
    filled(Letters(), corpus, kept)
    assert "model letters, now others" in refused(filled, Letters(identity="others"), corpus, kept)
    assert "shard_size 7, now 8" in refused(filled, Letters(), corpus, kept, size=8)
    beir.documents["d7"] = "another text"
    beir.write()
    changed = read_corpus(corpus.path)
    assert f"corpus {corpus.sha256}, now {changed.sha256}" in refused(
        filled, Letters(), changed, kept
    )
