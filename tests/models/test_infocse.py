"""The auxiliary objective: its loss by hand, where its gradient goes, and its ablations."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F

from models.auxiliary import load_masked_lm
from models.families import output_of
from models.loading import load_backbone, load_tokenizer
from models.objectives import infocse
from tests import methods
from tests.refusals import refused


@pytest.fixture
def stage_one(folder, tmp_path):
    """A folder with an auxiliary head, as stage 1 leaves it."""
    model = methods.stage_one(folder)
    for parameter in model.c_head.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    model.save(str(tmp_path), load_tokenizer(folder))
    return str(tmp_path)


def build(folder, head="batch_norm", aux_init="checkpoint", **options):
    return methods.build_model("infocse", folder, head=head, aux_init=aux_init, **options)


def batch_of(folder, **options):
    return methods.make_batch("infocse", folder, methods.mask_of([10, 9, 8, 7]), **options)


def auxiliary_of(model):
    return next(o for o in model.objectives if isinstance(o, infocse.AuxiliaryMLM))


@pytest.mark.parametrize(
    ("flags", "away", "views"),
    [({}, 0, 2), ({"aux_cls": "other"}, 1, 2), ({"aux_views": "first"}, 0, 1)],
)
@torch.no_grad()
def test_the_auxiliary_loss_equals_one_computed_by_sentence(stage_one, flags, away, views):
    model, batch = build(stage_one, **flags), batch_of(stage_one, **flags)
    aux, terms = auxiliary_of(model), model(**batch).terms
    lm, losses = load_masked_lm(stage_one).eval(), []
    transform, decoder = output_of(lm)
    for view, row in product(range(views), range(batch["input_ids"].shape[1])):
        length, read = (int(batch["attention_mask"][view, n].sum()) for n in (row, row - away))
        clean = batch["input_ids"][view, row - away, :read].unsqueeze(0)
        masked = batch["masked_input_ids"][view, row : row + 1, :length]
        h = lm.base_model(input_ids=clean).last_hidden_state[:, :1]
        lower = lm(input_ids=masked, output_hidden_states=True).hidden_states[2][:, 1:]
        states = torch.cat([h, lower], dim=1)
        for layer in aux.c_head:
            states = layer(states)
        labels = batch["masked_labels"][view, row, :length]
        logits = decoder(transform(states[0]))[labels != -100]
        losses += F.cross_entropy(logits, labels[labels != -100], reduction="none")
    assert len(losses) > 10
    assert terms["aux_mlm"].item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-4)


def test_gradient_reaches_the_encoder_only_through_cls_and_the_frozen_copy_not_at_all(stage_one):
    model, batch = build(stage_one, contrastive_weight=0.0), batch_of(stage_one)
    captured = []

    def keep(module, inputs, output):
        output.last_hidden_state.retain_grad()
        captured.append(output.last_hidden_state)

    model.encoder.backbone.register_forward_hook(keep)
    model(**batch).loss.backward()
    gradient = captured[0].grad
    assert gradient[:, 0].abs().max() > 1e-6
    assert gradient[:, 1:].abs().max() == 0
    aux = auxiliary_of(model)
    assert all(p.grad is None and not p.requires_grad for p in aux.lower.parameters())
    for part in (aux.c_head, aux.output, model.encoder):
        assert all(p.grad is not None for p in part.parameters() if p.requires_grad)
    assert model.encoder.backbone.embeddings.word_embeddings.weight.grad.abs().max() > 0


def test_without_detach_the_lower_copy_learns(stage_one):
    model = build(stage_one, aux_detach=False)
    model(**batch_of(stage_one)).loss.backward()
    assert all(p.grad is not None for p in auxiliary_of(model).lower.parameters())


def test_frozen_layers_have_dropout_only_when_asked(stage_one):
    batch = batch_of(stage_one)
    for frozen_eval, equal in ((True, True), (False, False)):
        model = build(stage_one, aux_frozen_eval=frozen_eval, dropout=0.3)
        lower = auxiliary_of(model).lower
        ids, mask = batch["masked_input_ids"][0], batch["attention_mask"][0]
        assert torch.equal(lower(ids, mask).all, lower(ids, mask).all) is equal
        assert auxiliary_of(model).c_head.training


def test_a_head_may_start_as_the_top_of_the_encoder(tiny_bert):
    folder = str(tiny_bert)
    refused(build, folder, head_layers=9, aux_init="encoder_top", match="--head_layers 9")
    top = auxiliary_of(build(folder, aux_init="encoder_top"))
    last = load_backbone(folder).encoder.layer[-1]
    assert torch.equal(top.c_head[1].output.dense.weight, last.output.dense.weight)
