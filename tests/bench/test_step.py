"""The plain step is the same computation as ours, and the command prints and writes its rows."""

import json

import pytest
import torch

from bench import pair
from bench.__main__ import main
from bench.pair import LENGTHS, batch


@pytest.mark.parametrize("weight", [pair.WEIGHT, 1.0])
@pytest.mark.parametrize("packed", [True, False])
def test_the_plain_step_has_our_loss_and_gradients(weight, packed):
    plain = pair.plain(pair.masked_lm("tiny", dropout=0.0), weight)
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
    common = ["--model=tiny", "--batch=4", "--runs=1", f"--precision={precision}"]
    rows = main(["step", *common, f"--output={tmp_path / 'rows.json'}"])
    assert json.loads((tmp_path / "rows.json").read_text()) == rows
    assert [row["name"] for row in rows] == ["infocse step", "simcse step against sentence-transformers"]
    for row in rows:
        assert row["ratio"] == pytest.approx(row["plain_ms"] / row["ours_ms"], rel=0.02)
        assert (row["precision"], row["model"], row["runs"]) == (precision, "tiny", 1)
    (row,) = main(["memory", *common])
    assert row["memory_ratio"] > 0.5
    printed = capsys.readouterr().out.splitlines()
    assert "infocse memory" in printed[-1]
