"""The batch-norm head and poolings by hand."""

import pytest
import torch

from models.heads import projection_named
from models.pooling import POOLINGS


def test_batch_norm_head_equals_the_formula_on_the_batch():
    torch.manual_seed(0)
    head, x = projection_named("batch_norm", 6, 0.3), torch.randn(10, 6)
    hidden = x @ head.inner.weight.T
    hidden = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt()
    out = hidden.clamp(min=0) @ head.outer.weight.T
    out = (out - out.mean(0)) / (out.var(0, unbiased=False) + 1e-5).sqrt()
    assert torch.allclose(head(x), out, atol=1e-5)
    assert head.outer_norm.weight is None
    assert head.inner.bias is None


# Embedding output and three layers; one sentence of two tokens and one padding position, width 2.
STATES = [n * torch.tensor([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]]) for n in (1, 10, 20, 100)]
MASK = torch.tensor([[1, 1, 0]])
EXPECTED = {"cls": [100.0, 200.0], "cls_before_pooler": [100.0, 200.0], "avg": [200.0, 300.0]}
EXPECTED |= {"last_token": [300.0, 400.0], "mask": [300.0, 400.0]}
EXPECTED["avg_top2"] = [120.0, 180.0]  # mean of (40, 60) and (200, 300)
EXPECTED["avg_first_last"] = [110.0, 165.0]  # first transformer layer (20, 30) and last
EXPECTED["avg_embedding_last"] = [101.0, 151.5]  # embedding layer (2, 3) and last


@pytest.mark.parametrize("name", POOLINGS)
def test_pooling_equals_the_hand_computation(name):
    for index in (1, -1):  # of the mask, the same token here
        assert POOLINGS[name].pool(STATES, MASK, index).tolist() == [EXPECTED[name]]
