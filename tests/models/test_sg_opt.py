"""SG-OPT against loops over sentences and layers; what is frozen stays."""

import math

import pytest
import torch

from models.objectives import sg_opt
from tests.methods import build_model, make_batch, mask_of

LENGTHS = [9, 4, 7, 2, 6]


def made(folder, packed=False, **options):
    return build_model("sg_opt", folder, packed, **options), make_batch(
        "sg_opt", folder, mask_of(LENGTHS)
    )


def guided(query, guides, temperature):
    """The formula, number by number: (N, D) and (K, N, D)."""

    def weight(a, b):
        dot = sum(x * y for x, y in zip(a, b, strict=True))
        return math.exp(dot / math.hypot(*a) / math.hypot(*b) / temperature)

    query, guides = query.tolist(), guides.tolist()
    total = 0.0
    for i, c in enumerate(query):
        others = sum(weight(c, h) for layer in guides for m, h in enumerate(layer) if m != i)
        for layer in guides:
            total -= math.log(weight(c, layer[i]) / (weight(c, layer[i]) + others))
    return total / len(query) / len(guides)


def test_the_loss_equals_its_formula():
    torch.manual_seed(0)
    query, guides = torch.randn(4, 6), torch.randn(3, 4, 6)
    assert sg_opt.guided_nt_xent(query, guides, 0.3).item() == pytest.approx(
        guided(query, guides, 0.3), rel=1e-5
    )
    without_overflow = sg_opt.guided_nt_xent(query, query[None], 1e-4)
    assert without_overflow.item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("packed", [False, True])
def test_the_model_s_loss_equals_a_computation_sentence_by_sentence(folder, packed):
    model, batch = made(folder, packed, temperature=0.2)
    [objective] = model.objectives
    torch.manual_seed(6)
    with torch.no_grad():  # as after some steps
        for p in model.encoder.parameters():
            p += 0.01 * torch.randn_like(p) * p.requires_grad
    output = model(**batch)
    vectors, layers = [], []
    for row, length in enumerate(LENGTHS):
        ids = batch["input_ids"][0, row : row + 1, :length]
        vectors.append(
            model.projection(model.encoder.backbone(input_ids=ids).last_hidden_state[0, 0])
        )
        states = objective.start.backbone(input_ids=ids, output_hidden_states=True).hidden_states
        layers.append(torch.stack([model.projection(layer[0].mean(0)) for layer in states]))
    want = guided(torch.stack(vectors), torch.stack(layers, dim=1), 0.2)
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
