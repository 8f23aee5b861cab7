"""The benches run on small inputs and print what they measured; the plain step is the same
computation as ours.

The figures themselves are no test."""

import json

import pytest
import torch

from bench import loop, pair
from bench.__main__ import main
from bench.cases import TINY, Case, Materials
from bench.pair import LENGTHS, batch
from models.loading import load_tokenizer

HOSTS = ["simcse", "infocse", "stage 1"]


def test_both_loops_run_and_give_a_row_and_the_host_s_parts():
    row, *hosts = main(["loop", "--rows=80", "--batch=4", "--steps", "2", "4"])
    assert row["name"] == "loop" and [host["name"] for host in hosts] == HOSTS
    for host in hosts:
        assert 0 < host["AdamW"] < host["all"] and 0 < host["collation"] < host["all"]
    assert {"plain_ms", "ours_ms", "ratio", "runs", "threads"} <= set(row)


def test_the_plain_collator_pads_and_masks_two_equal_views(tmp_path):
    _, ours = Materials(tmp_path, TINY, 8, 32).parts(Case("infocse", "bert", False, "float32"))
    data = loop.tokenised(ours.text, ours.frames[0], 16)
    batch = loop.PairCollator(load_tokenizer(tmp_path / "bert"), 0.4)([data[i] for i in range(8)])
    assert batch["input_ids"].shape == (8, 2, 16)
    assert (batch["input_ids"][:, 0] == batch["input_ids"][:, 1]).all()
    chosen = (batch["mlm_labels"] != -100).sum() / (batch["attention_mask"].sum() - 32)
    assert 0.2 < chosen < 0.6
    ids, _ = ours.text.sentences([0], 0, 2)
    assert batch["input_ids"][0, 0, :3].tolist() == [*ours.frames[0].prefix, *ids]


@pytest.mark.parametrize("weight", [pair.WEIGHT, 1.0])
@pytest.mark.parametrize("packed", [True, False])
def test_the_plain_step_has_our_loss_and_gradients(weight, packed):
    plain = pair.PlainInfoCSE(pair.masked_lm("tiny", dropout=0.0), weight)
    ours = pair.ours(pair.masked_lm("tiny", dropout=0.0), weight=weight, packed=packed)
    made = batch(ours.config, 16, 32, 1)
    made["input_ids"][1] = made["input_ids"][1].roll(
        1, 0
    )  # different views: the contrastive term is not trivial
    losses = [plain(**made), ours(**made).loss]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-4)
    assert losses[0] > 0.1
    for loss in losses:
        loss.backward()
    whole = torch.cat([p.grad.flatten() for p in plain.parameters() if p.grad is not None]).norm()
    for theirs, module in (
        (plain.encoder, ours.encoder.backbone),
        (plain.c_head, ours.objectives[1].c_head),
        (plain.output.predictions.transform, ours.objectives[1].output.transform),
    ):
        for p, q in zip(theirs.parameters(), module.parameters(), strict=True):
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


def test_steps_print_a_table_and_write_rows(tmp_path, capsys):
    flags = ["--model=tiny", "--batch=4", "--precision=bf16", "--runs=1"]
    rows = main(["step", *flags, f"--output={tmp_path / 'rows.json'}"])
    assert json.loads((tmp_path / "rows.json").read_text()) == rows
    assert [row["name"] for row in rows] == [
        "infocse step",
        "simcse step against sentence-transformers",
    ]
    for row in rows:
        assert row["ratio"] == pytest.approx(row["plain_ms"] / row["ours_ms"], rel=0.02)
        assert (row["precision"], row["model"], row["runs"]) == ("bf16", "tiny", 1)
    assert rows[0]["memory_ratio"] > 0.5 and rows[1]["memory_ratio"] is None
    assert capsys.readouterr().out.startswith("| name ")


def test_an_index_is_built_saved_loaded_and_searched():
    rows = main(["search", "--documents", "60"])
    assert [(row["documents"], row["vectors"]) for row in rows] == [(60, "float16"), (60, "int8")]
    assert all(row["query_ms"] > 0 and row["disk_mib"] >= 0 for row in rows)
