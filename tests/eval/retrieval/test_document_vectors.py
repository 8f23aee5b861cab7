import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from eval.retrieval.beir import embedded
from eval.retrieval.beir_files import read_corpus
from eval.vectors.store import MANIFEST
from tests.eval.toys import Letters
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
    assert names == [MANIFEST, *(f"shard-{i:05}.npy" for i in range(-(-40 // size)))]


def test_blocks_say_where_they_start_and_are_mapped(corpus, tmp_path):
    with embedded(Letters(), corpus, 6, tmp_path / "kept", 16) as shards:
        blocks = list(shards.blocks())
    assert [(start, block.shape) for start, block in blocks] == [(0, (16, 6)), (16, (16, 6)), (32, (8, 6))]
    assert all(isinstance(block, np.memmap) and block.dtype == np.float32 for _, block in blocks)


def test_without_a_folder_nothing_stays(corpus):
    with embedded(Letters(), corpus, 6, None, 7) as shards:
        folder = shards.store.folder
        assert len(list(folder.iterdir())) == 6
    assert not folder.exists()


def test_a_stopped_run_computes_only_what_is_missing(beir, corpus, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        filled(Letters(stop_after=20), corpus, tmp_path / "kept")
    again = Letters()
    assert (filled(again, corpus, tmp_path / "kept") == Letters()(beir.texts())).all()
    assert again.asked == beir.texts()[14:]
    nothing = Letters(stop_after=0)
    filled(nothing, corpus, tmp_path / "kept")
    assert nothing.asked == []


KILLED = """
import sys
from pathlib import Path
import eval.vectors.store
from eval.retrieval.beir_files import read_corpus
from eval.retrieval.beir import embedded
from tests.eval.toys import Letters

def half(paths):
    paths[0].write_bytes(b"half a shard")
    print("writing", flush=True)
    sys.stdin.read()

class KilledWhileWriting(Letters):
    def __call__(self, texts):
        if len(self.asked) == 14:
            eval.vectors.store.WRITERS["npy"] = half
        return super().__call__(texts)

with embedded(KilledWhileWriting(), read_corpus(Path(sys.argv[1])), 6, Path(sys.argv[2]), 7):
    pass
"""


def test_a_killed_run_leaves_only_whole_shards(beir, corpus, tmp_path):
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", KILLED, str(corpus.path), str(tmp_path / "kept")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=root, **pipes) as process:
        assert process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGKILL)
    names = sorted(path.name for path in (tmp_path / "kept").glob("*.npy*"))
    assert names[:2] == ["shard-00000.npy", "shard-00001.npy"]
    assert [name[:16] + name[-5:] for name in names[2:]] == ["shard-00002.npy..part"]
    again = Letters()
    assert (filled(again, corpus, tmp_path / "kept") == Letters()(beir.texts())).all()
    assert again.asked == beir.texts()[14:]
    assert not list((tmp_path / "kept").glob("*.part"))


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


@pytest.mark.parametrize("content", ["", "[]", "{", '{"corpus": 1}'])
def test_a_damaged_manifest_is_refused(corpus, tmp_path, content):
    filled(Letters(), corpus, tmp_path / "kept")
    (tmp_path / "kept" / MANIFEST).write_text(content)
    assert "choose another folder" in refused(filled, Letters(), corpus, tmp_path / "kept")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (np.zeros((6, 6), np.float32), r"holds float32 (6, 6), expected float32 (7, 6); remove it"),
        (np.zeros((7, 5), np.float32), r"holds float32 (7, 5), expected float32 (7, 6); remove it"),
        (np.zeros((7, 6), np.float64), r"holds float64 (7, 6), expected float32 (7, 6); remove it"),
        (b"", "not a whole shard"),
        (b"no array", "not a whole shard"),
        (-5, "not a whole shard"),
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
    assert message.startswith(f"{path}: ") and said in message and "remove it" in message
    assert again.asked == []


def test_a_folder_that_cannot_be_written_is_named(corpus, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written (" in refused(filled, Letters(), corpus, tmp_path / "file" / "kept")


def test_the_manifest_says_what_the_vectors_are_of(corpus, tmp_path):
    filled(Letters(), corpus, tmp_path / "kept")
    found = json.loads((tmp_path / "kept" / MANIFEST).read_text())
    assert found == {"corpus": corpus.sha256, "documents": 40, "model": "letters", "max_length": 32, "shard_size": 7}
