"""SG-OPT against loops over sentences and layers; what is frozen stays."""

import pytest
import torch

from tests.methods import build_model, make_batch, mask_of
from tests.models.test_contrast import slow_info_nce

LENGTHS = [9, 4, 7, 2, 6]


def made(folder, packed=False, **options):
    model = build_model("sg_opt", folder, packed, **options)
    return model, make_batch("sg_opt", folder, mask_of(LENGTHS))


def guided(query, guides, temperature):
    """Each layer's vector of a sentence against the others' of all layers: (N, D) and (K, N, D)."""
    total = 0.0
    for i in range(len(query)):
        others = [h for layer in guides for m, h in enumerate(layer) if m != i]
        for layer in guides:
            total += slow_info_nce(query[i : i + 1], layer[i : i + 1], temperature, others)
    return total / len(query) / len(guides)


@pytest.mark.parametrize("packed", [False, True])
def test_the_model_s_loss_equals_a_computation_sentence_by_sentence(folder, packed):
    """At a temperature whose exponentials are beyond float32."""
    model, batch = made(folder, packed, temperature=0.01)
    [objective] = model.objectives
    torch.manual_seed(6)
    with torch.no_grad():  # as after some steps
        for p in model.encoder.parameters():
            p += 0.01 * torch.randn_like(p) * p.requires_grad
    output = model(**batch)
    vectors, layers = [], []
    for row, length in enumerate(LENGTHS):
        ids = batch["input_ids"][0, row : row + 1, :length]
        state = model.encoder.backbone(input_ids=ids).last_hidden_state[0, 0]
        vectors.append(model.projection(state))
        states = objective.start.backbone(input_ids=ids, output_hidden_states=True).hidden_states
        layers.append(torch.stack([model.projection(layer[0].mean(0)) for layer in states]))
    want = guided(torch.stack(vectors), torch.stack(layers, dim=1), 0.01)
    assert len(layers[0]) == model.config.num_hidden_layers + 1
    assert output.terms["contrastive"].item() == pytest.approx(want, rel=1e-4)
    start = dict(objective.start.named_parameters())
    apart = sum((p - start[n]).pow(2).sum().item() for n, p in model.encoder.named_parameters())
    assert apart > 0.1
    assert output.terms["distance"].item() == pytest.approx(apart, rel=1e-4)
    assert output.loss.item() == pytest.approx(want + 0.1 * apart, rel=1e-4)


def test_the_copy_has_no_dropout(tiny_bert):
    model, batch = made(tiny_bert, dropout=0.3)
    given = batch["input_ids"][0], batch["attention_mask"][0]
    first, second = (model.objectives[0].start.layer_means(*given) for _ in range(2))
    assert torch.equal(first, second)
    first, second = (model.encoder.layer_means(*given) for _ in range(2))
    assert not torch.equal(first, second)
