"""The same shards under Ray Data; only where Ray is installed."""

import numpy as np
import pytest

from common.errors import BadInput
from data.lines import numbered_lines
from eval.vectors.job import Job
from eval.vectors.store import VectorStore, read_vectors
from eval.vectors.workers import encode_corpus

ray = pytest.importorskip("ray")


def letters(device):
    """A class that is defined here, where Ray's workers cannot import it, travels by value."""

    class Letters:
        identity, max_length = "letters", 32

        def __call__(self, texts):
            return np.array([[text.count(letter) for letter in "aeiost"] for text in texts], dtype=np.float32)

    return Letters()


@pytest.fixture
def local():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_ray_gives_the_same_files_goes_on_and_passes_our_errors_on(local, sentences, tmp_path):
    ray.cloudpickle.register_pickle_by_value(__import__("sys").modules[__name__])
    (tmp_path / "in").mkdir()
    for i in range(4):
        (tmp_path / "in" / f"{i}.txt").write_text("\n".join(sentences[20 * i : 20 * i + 20]), encoding="utf-8")
    job, given = Job(letters, numbered_lines, VectorStore(tmp_path / "out")), [str(tmp_path / "in")]
    assert all(record["new"] for record in encode_corpus(job, given, 2, ray=True))
    found = [read_vectors(tmp_path / "out" / f"{i}.parquet") for i in range(4)]
    assert (np.concatenate(found) == letters("cpu")(sentences[:80])).all()
    (tmp_path / "out" / "2.parquet").unlink()
    records = encode_corpus(job, given, 2, ray=True)
    assert {record["source"] for record in records if record["new"]} == {"2.txt"}
    (tmp_path / "in" / "3.txt").write_text("other\n")
    with pytest.raises(BadInput, match=r"3\.txt: the text has changed since"):
        encode_corpus(job, given, 2, ray=True)
