"""IS-BERT against loops over tokens and sentences."""

import math

import pytest
import torch
import torch.nn.functional as F

from models.objectives.is_bert import jensen_shannon
from tests.methods import build_model, make_batch, mask_of

LENGTHS = [9, 4, 7, 1, 6]


def softplus(x):
    return math.log1p(math.exp(x))


def estimate(features, vectors, row):
    """The paper's estimate over one sentence's tokens; its vector is number `row`."""
    total = 0.0
    for token in features:
        total += math.log(2) - softplus(-(token @ vectors[row]).item())
        others = [v for n, v in enumerate(vectors) if n != row]
        total -= sum(softplus((token @ v).item()) - math.log(2) for v in others) / len(others)
    return total


def test_nothing_known_is_zero_and_everything_known_is_two_log_two():
    mask, rows = torch.ones(3, 2), torch.arange(3)
    loss = jensen_shannon(torch.zeros(3, 2, 4), mask, torch.randn(3, 4), rows)
    assert loss.item() == pytest.approx(0, abs=1e-5)
    apart = 100 * (2 * torch.eye(3) - 1)
    loss = jensen_shannon(apart[:, None].expand(3, 2, 3), mask, torch.eye(3), rows)
    assert loss.item() == pytest.approx(-6 * 2 * math.log(2), rel=1e-6)


@pytest.mark.parametrize("pooling", ["avg", "cls_before_pooler", "avg_top2"])
def test_the_model_s_loss_equals_a_computation_token_by_token(tiny_bert, pooling):
    model = build_model("is_bert", tiny_bert, pooling=pooling)
    batch = make_batch("is_bert", tiny_bert, mask_of(LENGTHS))
    loss = model(**batch).terms["information"].item()
    [objective] = model.objectives
    features = []
    for row, length in enumerate(LENGTHS):
        ids = batch["input_ids"][0, row : row + 1, :length]
        states = model.encoder.backbone(input_ids=ids).last_hidden_state[0]
        local = []
        for part in objective.local.convolutions:
            beside = part.weight.shape[2] // 2  # nothing stands beyond the ends
            local.append(F.conv1d(states.T, part.weight, part.bias, padding=beside))
        features.append(torch.cat(local).T)
    vectors = torch.stack([made.mean(0) for made in features])
    want = -sum(estimate(made, vectors, row) for row, made in enumerate(features)) / sum(LENGTHS)
    assert loss == pytest.approx(want, rel=1e-4)
