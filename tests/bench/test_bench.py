"""The benches run on small inputs and print what they measured; the plain step is the same computation as ours.

The figures themselves are no test."""

import json
from functools import partial
from unittest.mock import MagicMock

import pytest
import torch

from bench import corpus, encode_corpus, loop, pair, transfer
from bench.__main__ import main, table
from bench.pair import LENGTHS, batch
from common.errors import BadInput, ProjectError
from data.lines import numbered_lines
from data.template import frame_of
from eval.encode_corpus.job import Job
from eval.vectors import VectorStore


def test_transfer_compares_digits_and_gives_a_row(tmp_path, capsys):
    out = tmp_path / "rows.json"
    rows = main(["transfer", "--rows=120", "--dimension=8", "--mode=fasttest", "--runs=1", f"--output={out}"])
    [row] = json.loads(out.read_text())
    assert rows == [row]
    assert row["ratio"] == pytest.approx(row["plain_ms"] / row["ours_ms"], abs=0.01 + 0.05 * row["ratio"])
    assert {"machine", "torch", "threads", "dev", "test", "runs", "precision"} <= set(row)
    assert capsys.readouterr().out.startswith("| name ")
    with pytest.raises(BadInput, match="--rows 99: too few"):
        main(["transfer", "--rows=99"])


def test_transfer_refuses_accuracies_that_differ(monkeypatch):
    monkeypatch.setattr(transfer, "nested", lambda *_: (1.0, 2.0))
    with pytest.raises(ProjectError, match=r"plain \(1\.0, 2\.0\)"):
        main(["transfer", "--rows=120", "--dimension=8", "--mode=fasttest"])


def test_a_generated_corpus_is_found_whole_and_goes_on_in_its_folder(tmp_path):
    [row] = main(["corpus", "--documents=3000", f"--folder={tmp_path}"])
    assert (row["documents"], row["ndcg@10"]) == (3000, 100.0)
    shard = next((tmp_path / "3000" / "embeddings").rglob("shard-*.npy"))
    before = shard.stat().st_mtime_ns
    assert corpus.run(3000, tmp_path / "3000")["ndcg@10"] == 100.0
    assert shard.stat().st_mtime_ns == before


def test_figures_that_were_not_taken_are_shown_as_such():
    *_, last = table([{"name": "a", "memory_ratio": None, "ratio": 2.0}]).splitlines()
    assert last == "| a    | 2.0   | not taken    |"


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
    (tmp_path / "vectors" / "part-00001.npy").write_bytes((tmp_path / "vectors/part-00000.npy").read_bytes())
    with pytest.raises(ProjectError, match=r"part-00001\.txt: the vectors do not match the lines"):
        encode_corpus.compare(tmp_path / "text", tmp_path / "vectors")


def test_both_loops_run_and_give_a_row():
    [row] = main(["loop", "--rows=80", "--batch=4", "--steps", "2", "4"])
    assert row["name"] == "loop"
    assert {"plain_ms", "ours_ms", "ratio", "runs", "threads"} <= set(row)


def test_the_plain_collator_pads_and_masks_two_equal_views():
    tokenizer, sentences = loop.generated(8)
    around = frame_of(tokenizer)
    assert (*around, tokenizer.mask_token_id) == ([101], [102], 103)
    data = loop.tokenised(sentences, around, 16)
    batch = loop.PairCollator(tokenizer, 0.4)([data[i] for i in range(8)])
    assert batch["input_ids"].shape == (8, 2, 16)
    assert (batch["input_ids"][:, 0] == batch["input_ids"][:, 1]).all()
    chosen = (batch["mlm_labels"] != -100).sum() / (batch["attention_mask"].sum() - 32)
    assert 0.2 < chosen < 0.6
    assert batch["input_ids"][0, 0, :3].tolist() == [101, *sentences[0][:2]]


def test_the_slope_leaves_out_what_a_run_costs_once(monkeypatch):
    clock = iter([0.0, 5.0, 5.0, 10.2])
    monkeypatch.setattr(loop.time, "process_time", lambda: next(clock))
    assert loop._slope(lambda steps: MagicMock(), [100, 200]) == pytest.approx(2.0)


@pytest.mark.parametrize("weight", [pair.WEIGHT, 1.0])
@pytest.mark.parametrize("packed", [True, False])
def test_the_plain_step_has_our_loss_and_gradients(weight, packed):
    plain = pair.PlainInfoCSE(pair.masked_lm("tiny", dropout=0.0), weight)
    ours = pair.ours(pair.masked_lm("tiny", dropout=0.0), weight=weight, packed=packed)
    made = batch(ours.config, 16, 32, 1)
    made["input_ids"][1] = made["input_ids"][1].roll(1, 0)  # different views: the contrastive term is not trivial
    losses = [plain(**made), ours(**made).loss]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-4)
    assert losses[0] > 0.1
    for loss in losses:
        loss.backward()
    whole = torch.cat([p.grad.flatten() for p in plain.parameters() if p.grad is not None]).norm()
    for one, two in (
        (plain.encoder, ours.encoder.backbone),
        (plain.c_head, ours.objectives[1].c_head),
        (plain.output.predictions.transform, ours.objectives[1].output.transform),
    ):
        for p, q in zip(one.parameters(), two.parameters(), strict=True):
            assert (p.grad - q.grad).norm() <= 1e-4 * p.grad.norm() + 1e-6 * whole
    decoders = plain.output.predictions.decoder, ours.objectives[1].output.decoder
    assert torch.allclose(decoders[0].weight.grad, decoders[1].weight.grad, rtol=1e-3, atol=1e-7)
    assert all(p.grad is None for p in plain.frozen.parameters())


def test_batches_have_real_lengths():
    config = pair.config_of("tiny")
    made = batch(config, 2000, 32, 0)
    lengths = made["attention_mask"].sum(-1)
    assert sum(LENGTHS) == 11914
    assert lengths.float().mean() == pytest.approx(21.9, abs=0.5)
    masked = (made["masked_labels"] != -100).sum() / (lengths - 2).sum()
    assert masked.item() == pytest.approx(0.4, abs=0.02)
    assert (made["masked_labels"][:, :, 0] == -100).all()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_step_and_memory_print_a_table_and_write_rows(precision, tmp_path, capsys):
    common = ["--model=tiny", "--batch=4", f"--precision={precision}"]
    rows = main(["step", *common, "--runs=1", f"--output={tmp_path / 'rows.json'}"])
    assert json.loads((tmp_path / "rows.json").read_text()) == rows
    assert [row["name"] for row in rows[:2]] == ["infocse step", "simcse step against sentence-transformers"]
    weights = 1000 * 32 + 512 * 32 + 2 * 32 + 2 * 32 + 4 * (4 * (32 * 32 + 32) + 2 * 32 * 64 + 32 + 64 + 4 * 32)
    assert rows[2]["trainable_share"] == round(4 * 2 * 2 * 8 * 32 / weights, 5) and rows[2]["plain_mib"] > 0
    for row in rows:
        assert row["ratio"] == pytest.approx(row["plain_ms"] / row["ours_ms"], rel=0.02)
        assert (row["precision"], row["model"], row["runs"]) == (precision, "tiny", 1)
    (row,) = main(["memory", *common])
    assert row["memory_ratio"] > 0.5
    printed = capsys.readouterr().out.splitlines()
    assert "infocse memory" in printed[-1]


def test_an_output_that_is_not_a_table_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    for output in (tmp_path, tmp_path / "thesis.txt"):
        with pytest.raises(BadInput, match="--output"):
            main(["step", "--output", str(output)])
    assert (tmp_path / "thesis.txt").read_text() == "mine"
