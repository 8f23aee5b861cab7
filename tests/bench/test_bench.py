"""The benches run on small inputs and print what they measured; the plain step is the same
computation as ours. The figures themselves are no test."""

import json

import pytest
import torch
from transformers import BertForMaskedLM

from bench import step
from bench.__main__ import main
from bench.cases import TINY, Case, Materials


@pytest.mark.parametrize(("weight", "packed"), [(step.WEIGHT, True), (1.0, False)])
def test_the_plain_step_has_our_loss_and_gradients(tmp_path, weight, packed):
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    materials = Materials(tmp_path, TINY | dropout | {"initializer_range": 0.3}, 16, 32)
    flags = {"dropout": 0.0, "aux_weight": weight}
    ours, collator = materials.parts(Case("infocse", packed=packed), **flags)
    plain = step.PlainInfoCSE(BertForMaskedLM.from_pretrained(tmp_path / "bert"), weight)
    ours.train()
    auxiliary = ours.objectives[1]
    pairs = [
        (plain.encoder, ours.encoder.backbone),
        (plain.c_head, auxiliary.c_head),
        (plain.output.predictions.transform, auxiliary.output.transform),
        (plain.projection, ours.projection),
    ]
    for theirs, module in pairs[1:]:
        theirs.load_state_dict(module.state_dict())
    made = collator([(0, row, 0) for row in range(16)])
    made["input_ids"][1] = made["input_ids"][1].roll(1, 0)  # equal views have a trivial loss
    losses = [plain(**made), ours(**made).loss]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-4)
    assert losses[0] > 0.1
    for loss in losses:
        loss.backward()
    whole = torch.cat([p.grad.flatten() for p in plain.parameters() if p.grad is not None]).norm()
    for theirs, module in pairs:
        for p, q in zip(theirs.parameters(), module.parameters(), strict=True):
            assert (p.grad - q.grad).norm() <= 1e-4 * p.grad.norm() + 1e-6 * whole
    decoders = plain.output.predictions.decoder, auxiliary.output.decoder
    assert torch.allclose(decoders[0].weight.grad, decoders[1].weight.grad, rtol=1e-3, atol=1e-7)
    assert all(p.grad is None for p in plain.frozen.parameters())


def test_steps_print_a_table_and_write_rows(tmp_path, capsys):
    flags = ["--model=tiny", "--batch=4", "--precision=bf16", "--runs=1"]
    rows = main(["step", *flags, f"--output={tmp_path / 'rows.json'}"])
    assert json.loads((tmp_path / "rows.json").read_text()) == rows
    names = ["infocse step", "simcse step against sentence-transformers"]
    assert [row["name"] for row in rows] == names
    for row in rows:
        assert row["ratio"] == pytest.approx(row["plain_ms"] / row["ours_ms"], rel=0.02)
        assert (row["precision"], row["model"], row["runs"]) == ("bf16", "tiny", 1)
    assert rows[0]["memory_ratio"] > 0.5 and rows[1]["memory_ratio"] is None
    assert capsys.readouterr().out.startswith("| name ")


def test_an_index_is_built_saved_loaded_and_searched():
    [row] = main(["search", "--documents", "60"])
    assert row["documents"] == 60 and row["query_ms"] > 0 and row["disk_mib"] >= 0
