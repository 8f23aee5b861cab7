"""The benches run on small inputs and print what they measured; the figures themselves are no test."""

import json
from functools import partial

import pytest

from bench import corpus, encode_corpus, transfer
from bench.__main__ import main, table
from common.errors import ProjectError
from data.text import numbered_lines
from eval.vectors.job import Job
from eval.vectors.store import VectorStore


def test_transfer_compares_digits_and_gives_a_row(tmp_path, capsys):
    out = tmp_path / "rows.json"
    rows = main(["transfer", "--rows=120", "--dimension=8", "--mode=fasttest", "--runs=1", f"--output={out}"])
    [row] = json.loads(out.read_text())
    assert rows == [row]
    assert row["ratio"] == pytest.approx(row["plain_ms"] / row["ours_ms"], abs=0.01 + 0.05 * row["ratio"])
    assert {"machine", "torch", "threads", "dev", "test", "runs", "precision"} <= set(row)
    assert capsys.readouterr().out.startswith("| name ")


def test_transfer_refuses_accuracies_that_differ(monkeypatch):
    monkeypatch.setattr(transfer, "nested", lambda *_: (1.0, 2.0))
    with pytest.raises(ProjectError, match=r"plain \(1\.0, 2\.0\)"):
        main(["transfer", "--rows=120", "--dimension=8", "--mode=fasttest"])


def test_a_generated_corpus_is_found_whole_and_goes_on_in_its_folder(tmp_path):
    [row] = main(["corpus", "--documents=3000", f"--folder={tmp_path}"])
    assert (row["documents"], row["ndcg@10"]) == (3000, 100.0)
    shard = next((tmp_path / "3000" / "embeddings").rglob("shard-*.npy"))
    before = shard.stat().st_mtime_ns
    assert corpus.run(3000, tmp_path)["ndcg@10"] == 100.0
    assert shard.stat().st_mtime_ns == before


def test_figures_that_were_not_taken_are_shown_as_such():
    assert (
        table([{"name": "a", "memory_ratio": None, "ratio": 2.0}]).splitlines()[-1] == "| a    | 2.0   | not taken    |"
    )


@pytest.mark.slow
def test_a_killed_corpus_is_complete_and_equal(tmp_path):
    flags = ["--sentences=200000", "--shards=40", "--kills=1", f"--folder={tmp_path}"]
    [row] = main(["encode_corpus", *flags])
    assert row["equal"] == 200_000
    assert 20 <= row["kept_at_kills"][0] < 40


def test_generated_text_is_read_and_read_again_late_in_an_epoch():
    [row] = main(["text", "--sentences=2000", "--batches=10"])
    assert (row["sentences"], row["batches"], row["last_batches"]) == (2000, 10, 10)
    assert 16_000 <= row["tokens"] <= 24_000


def test_vectors_that_are_not_of_their_lines_are_found(tmp_path):
    job = Job(partial(encode_corpus.Stub, tmp_path), numbered_lines, VectorStore(tmp_path / "vectors"))
    encode_corpus.generate(tmp_path / "text", 50, 4)
    encode_corpus.encode_corpus(job, [str(tmp_path / "text")], 1)
    assert encode_corpus.compare(tmp_path / "text", tmp_path / "vectors") == 50
    (tmp_path / "vectors" / "part-00001.parquet").write_bytes((tmp_path / "vectors/part-00000.parquet").read_bytes())
    with pytest.raises(ProjectError, match=r"part-00001\.txt: its vectors are not those of its lines"):
        encode_corpus.compare(tmp_path / "text", tmp_path / "vectors")
