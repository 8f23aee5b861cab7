"""Composition: views, projection, kept head, hooks, recomputed layers."""

import pytest
import torch

import run_unsup
from models import collectives
from models.contrast import info_nce
from models.encoder import SentenceEncoder
from models.folder import weights_of
from models.heads import projection_named
from models.loading import load_backbone
from models.objectives import simcse
from models.objectives.base import Batch, Term, add_up
from models.training import EncoderForTraining
from tests import methods


def make_model(folder, projection="linear_tanh"):
    torch.manual_seed(0)
    backbone = load_backbone(str(folder))
    head = projection_named(projection, backbone.config.hidden_size, 0.3)
    encoder = SentenceEncoder(backbone, "cls_before_pooler", None, 64)
    return EncoderForTraining(encoder, head, [simcse.Contrastive(0.05)])


def make_batch(views=2, rows=5, length=8):
    ids = torch.randint(10, 90, (views, rows, length), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def test_loss_equals_info_nce_of_the_projected_views_the_third_as_hard_negatives(tiny_bert):
    model, batch = make_model(tiny_bert).eval(), make_batch()
    z = [
        model.projection(model.encoder.backbone(input_ids=ids).last_hidden_state[:, 0])
        for ids in batch["input_ids"]
    ]
    assert model(**batch).loss.item() == pytest.approx(info_nce(z[0], z[1], 0.05).item(), rel=1e-5)
    model, batch = make_model(tiny_bert, projection="none").eval(), make_batch(views=3)
    z = [
        model.encoder.backbone(input_ids=ids).last_hidden_state[:, 0] for ids in batch["input_ids"]
    ]
    assert model(**batch).loss.item() == pytest.approx(
        info_nce(z[0], z[1], 0.05, z[2]).item(), rel=1e-5
    )


def test_a_batch_has_twins_of_any_name_and_its_chunks_have_theirs():
    ids = torch.arange(30).view(1, 5, 6)
    given = make_batch(rows=5) | {"other_input_ids": ids, "other_labels": -ids}
    batch = Batch.of(**given, labels=torch.arange(5).view(1, 5))
    assert batch.twins.keys() == {"other"}
    parts = batch.split(2)
    assert [part.input_ids.shape[1] for part in parts] == [2, 2, 1]
    for name in ("input_ids", "labels"):
        whole = getattr(batch.twins["other"], name)
        assert torch.equal(
            torch.cat([getattr(part.twins["other"], name) for part in parts], 1), whole
        )
    assert torch.equal(torch.cat([part.labels for part in parts], 1), batch.labels)
    with pytest.raises(TypeError, match="unknown"):
        Batch.of(**given, unknown=ids)


def test_the_processes_agree_on_the_counts_of_all_terms_by_one_message(monkeypatch):
    """The other process has 6 and 2 tokens: means are scaled so that DDP's average is exact."""
    sent = []
    monkeypatch.setattr(collectives, "world_size", lambda: 2)
    monkeypatch.setattr(
        collectives.dist,
        "all_reduce",
        lambda counts: sent.append(counts.add_(torch.tensor([6, 2]))),
    )
    terms = {
        "one": Term(torch.tensor(12.0), 1.0, torch.tensor(4)),
        "two": Term(torch.tensor(3.0), 0.5),
    }
    third = "three", Term(torch.tensor(10.0), 0.1, torch.tensor(3))
    loss, values = add_up([*terms.items(), third], torch.device("cpu"))
    assert values == {"one": 12 * 2 / 10, "two": 3, "three": 10 * 2 / 5}
    assert loss.item() == pytest.approx(2.4 + 1.5 + 0.4)
    assert len(sent) == 1


LENGTHS = [6, 9] * 3
AGAIN = [(case, True) for case in ("simcse", "infocse", "tsdae", "nli, adversarial", "stage 1")]
AGAIN += [(case, False) for case in ("infocse, no detach", "consert", "ct", "stage 1")]


@pytest.mark.parametrize(("case", "packed"), AGAIN)
def test_recomputed_layers_have_the_same_gradients(tiny_bert, case, packed):
    """With dropout; `--gradient_checkpointing` of the Trainer."""
    results = []
    for again in (False, True):
        if case == "stage 1":
            model, made = (
                methods.stage_one(tiny_bert, packed, dropout=0.1),
                methods.stage_one_batch(tiny_bert, LENGTHS),
            )
            layers = model.lm.bert.encoder.layer
        else:
            model = methods.build_model(case, tiny_bert, packed, dropout=0.1)
            made = methods.make_batch(case, tiny_bert, methods.mask_of(LENGTHS))
            layers = model.encoder.backbone.encoder.layer
        computed = []
        layers[1].attention.register_forward_hook(lambda *_, of=computed: of.append(1))
        if again:
            model.gradient_checkpointing_enable()
        torch.manual_seed(3)
        model(**made).loss.backward()
        results.append(([p.grad for p in model.parameters()], len(computed)))
    (plain, once), (other, twice) = results
    assert twice > once
    assert all(
        (a is None and b is None) or torch.equal(a, b) for a, b in zip(plain, other, strict=True)
    )


@pytest.mark.parametrize("method", ["simcse", "infocse", "simcse_mlm", "tsdae"])
def test_the_initial_model_is_loaded_once(tiny_bert, short_run, monkeypatch, method):
    """Copies of its layers and of its output head are taken from memory."""
    read, path = [], str(tiny_bert)
    monkeypatch.setattr(
        "models.loading.weights_of", lambda folder: read.append(folder) or weights_of(folder)
    )
    flags = {"skip_from": 2, "aux_init": "encoder_top"} if method == "infocse" else {}
    run_unsup.main(short_run(path, method=method, bow_weight=0.1, **flags))
    assert read.count(path) == 1
