"""Contrastive Tension against loops over pairs; two encoders that learn apart."""

import math

import pytest
import torch

from models.objectives import ct
from tests.methods import build_model, make_batch, mask_of
from tests.refusals import refused

LENGTHS = [9, 4, 7, 9, 2, 6, 3, 8]


def made(folder, **options):
    model = build_model("ct", folder, pooling="avg", **options)
    return model, make_batch("ct", folder, mask_of(LENGTHS))


def entropy(x, same):
    chance = 1 / (1 + math.exp(-x))
    return -math.log(chance if same else 1 - chance)


@pytest.mark.parametrize(("count", "negatives"), [(1, 7), (2, 7), (3, 1)])
def test_too_few_rows_for_different_pairs_are_refused(count, negatives):
    refused(ct.pairing, count, negatives, match="per_device_train_batch_size")


def test_the_model_s_loss_equals_a_computation_pair_by_pair(tiny_bert):
    model, batch = made(tiny_bert, negatives=3)
    [objective] = model.objectives
    torch.manual_seed(5)
    # Different encoders; short vectors, because the sigmoid of a large product hides errors.
    with torch.no_grad():
        for encoder, scale in ((model.encoder, 0.1), (objective.second, 0.2)):
            last = encoder.backbone.encoder.layer[-1].output
            last.dense.weight.add_(torch.randn_like(last.dense.weight))
            last.LayerNorm.weight.mul_(scale)
    loss = model(**batch).terms["contrastive"].item()

    def vector(encoder, row):
        ids = batch["input_ids"][0, row : row + 1, : LENGTHS[row]]
        return encoder.backbone(input_ids=ids).last_hidden_state[0].mean(0)

    pairs = [(0, 0), (1, 2), (2, 3), (3, 5), (4, 4), (5, 6), (6, 7), (7, 1)]
    values = [(vector(model.encoder, i) @ vector(objective.second, j)).item() for i, j in pairs]
    assert max(map(abs, values)) < 20 and max(values) - min(values) > 0.1
    want = sum(entropy(x, i == j) for x, (i, j) in zip(values, pairs, strict=True)) / len(LENGTHS)
    assert loss == pytest.approx(want, rel=1e-5)


def test_pairs_of_one_batch_size_stay_where_a_cuda_graph_reads_them(tiny_bert):
    model, batch = made(tiny_bert, negatives=3)
    [objective] = model.objectives
    model(**batch)
    pairs = objective._pairs[8]
    model(**make_batch("ct", tiny_bert, mask_of(LENGTHS[:4])))
    model(**batch)
    assert objective._pairs[8] is pairs


def test_both_encoders_start_alike_and_learn_apart(tiny_bert):
    model, batch = made(tiny_bert)
    encoders = model.encoder, model.objectives[0].second
    pairs = [dict(encoder.named_parameters()) for encoder in encoders]
    assert pairs[0].keys() == pairs[1].keys()
    model(**batch).loss.backward()
    for name, p in pairs[0].items():
        assert torch.equal(p, pairs[1][name]) and p.data_ptr() != pairs[1][name].data_ptr()
    gradients = [torch.cat([p.grad.flatten() for p in side.values()]) for side in pairs]
    assert min(g.norm() for g in gradients) > 1e-4
    assert not torch.allclose(*gradients, rtol=1e-3)
