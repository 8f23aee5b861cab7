"""The benches run on small inputs and print what they measured; the figures themselves are no test."""

import json

import pytest

from bench import corpus, transfer
from bench.__main__ import main, table
from errors import ProjectError


def test_transfer_compares_digits_and_gives_a_row(tmp_path, capsys):
    out = tmp_path / "rows.json"
    rows = main(["transfer", "--rows=120", "--dimension=8", "--mode=fasttest", "--runs=1", f"--output={out}"])
    [row] = json.loads(out.read_text())
    assert rows == [row]
    assert row["ratio"] == pytest.approx(row["plain_ms"] / row["ours_ms"], abs=0.01 + 0.05 * row["ratio"])
    assert {"machine", "torch", "threads", "dev", "test", "runs", "precision"} <= set(row)
    assert capsys.readouterr().out.startswith("| name ")


def test_transfer_refuses_accuracies_that_differ(monkeypatch):
    monkeypatch.setattr(transfer.plain_transfer, "nested", lambda *_: (1.0, 2.0))
    with pytest.raises(ProjectError, match=r"plain \(1\.0, 2\.0\)"):
        main(["transfer", "--rows=120", "--dimension=8", "--mode=fasttest"])


def test_a_generated_corpus_is_found_whole_and_goes_on_in_its_folder(tmp_path):
    [row] = main(["corpus", "--documents=3000", f"--folder={tmp_path}"])
    assert (row["documents"], row["ndcg@10"]) == (3000, 100.0)
    shard = next((tmp_path / "embeddings").rglob("shard-*.npy"))
    before = shard.stat().st_mtime_ns
    assert corpus.run(3000, tmp_path)["ndcg@10"] == 100.0
    assert shard.stat().st_mtime_ns == before


def test_figures_that_were_not_taken_are_shown_as_such():
    assert (
        table([{"name": "a", "memory_ratio": None, "ratio": 2.0}]).splitlines()[-1] == "| a    | 2.0   | not taken    |"
    )
