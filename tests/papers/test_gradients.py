"""The gradients of InfoCSE's losses, against trainings with one loss, and along a training."""

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModelForMaskedLM

from papers import gradients
from tests.methods import build_model, make_batch, mask_of
from tests.refusals import refused


def norm_of(backbone):
    return torch.cat([p.grad.flatten() for p in backbone.parameters() if p.grad is not None]).norm()


def test_a_loss_has_the_gradient_of_a_training_with_it_alone(tiny_bert):
    batch = make_batch("infocse", tiny_bert, mask_of([9, 5, 7, 6]), aux_views="first")

    def built(**weights):
        return build_model("infocse", tiny_bert, aux_views="first", **weights)

    found = gradients.norms(built(aux_weight=1e-5), batch)
    for name, other in (("contrastive", "aux_weight"), ("auxiliary", "contrastive_weight")):
        model = built(**{other: 0.0})
        loss = model(**batch).loss
        loss.backward()
        assert found[name] == pytest.approx(loss.item(), rel=1e-5)
        assert found[f"{name}_gradient"] == pytest.approx(norm_of(model.encoder).item(), rel=1e-4)

    lm = AutoModelForMaskedLM.from_pretrained(tiny_bert).eval()
    decoder = lm.cls.predictions.decoder
    decoder.weight = torch.nn.Parameter(decoder.weight.detach().clone())
    labels = batch["masked_labels"][0]
    logits = lm(batch["masked_input_ids"][0], batch["attention_mask"][0]).logits
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    loss.backward()
    assert found["tokens"] == (labels != -100).sum()
    assert found["mlm"] == pytest.approx(loss.item(), rel=1e-5)
    assert found["mlm_gradient"] == pytest.approx(norm_of(lm.bert).item(), rel=1e-4)


def test_the_command_measures_what_is_missing(tiny_bert, text_file, tmp_path, monkeypatch, capsys):
    text = tmp_path / "text"
    text.mkdir()
    (text / "wiki_sentences.txt").write_bytes(text_file.read_bytes())
    flags = ["--arms", gradients.RANDOM, f"--model={tiny_bert}", "--steps=3", "--every=2"]
    flags += [f"--{name}={tmp_path}" for name in ("data_dir", "runs", "output")]
    rows = gradients.main(flags)
    places = [(row["arm"], row["seed"], row["step"]) for row in rows]
    assert places == [(gradients.RANDOM, 0, step) for step in (0, 2)]
    assert rows[0]["contrastive"] != rows[1]["contrastive"] and rows[0]["facts"]["steps"] == 3
    assert "| random layers" in capsys.readouterr().out
    more = gradients.main([*flags[:3], "--steps=3", "--every=1", *flags[5:7], f"--output={text}"])
    assert more[2] == rows[1] | {"how": more[2]["how"]}, "measuring changes no training"
    monkeypatch.setattr(gradients, "measure", lambda *_: pytest.fail("measured again"))
    assert gradients.main(flags) == rows
    said = refused(gradients.main, [*flags[:3], "--steps=4", *flags[4:]])
    assert "other settings; give another --output" in said


def test_the_table_counts_a_batch_by_its_sum_over_tokens_and_changes_within_a_run():
    rows = []
    for seed, sizes in ((0, (1.0, 3.0)), (1, (10.0, 11.0))):
        for step, size in enumerate(sizes):
            row = {"arm": "a", "seed": seed, "step": step, "tokens": 400}
            row |= {"contrastive": 0.5, "auxiliary": 2.0, "mlm": 1.0, "contrastive_gradient": 1.0}
            row |= {"facts": {"steps": 21}}
            rows.append({**row, "auxiliary_gradient": size, "mlm_gradient": 4 * size})
    cells = gradients.table(rows).splitlines()[-1].replace("|", " ").split()
    assert cells == ["a", "2", "21", "1", "6.25", "25", "0.25", "1.5", "4", "1,600", "100%"]
