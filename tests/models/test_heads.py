"""Projection heads: their definition, and that their saved form equals them."""

import pytest
import torch
from torch import nn

from models.heads import PROJECTIONS, projection_named


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


@pytest.mark.parametrize("name", PROJECTIONS)
def test_dense_layers_equal_the_head_in_evaluation_mode(name):
    torch.manual_seed(1)
    head = projection_named(name, 8, 0.3)
    for _ in range(5):
        head(torch.randn(16, 8) * 3 + 1)  # running statistics away from their start
    head.eval()
    x = torch.randn(4, 8)
    state = torch.get_rng_state()
    layers = head.dense_layers()
    assert torch.equal(torch.get_rng_state(), state), "a saved model changes no later dropout"
    assert torch.allclose(nn.Sequential(*layers)(x), head(x), atol=1e-5)
