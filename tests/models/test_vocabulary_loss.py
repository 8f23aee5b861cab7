"""The chunked loss is torch's cross entropy, its gradients included."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from models.fast import vocabulary_loss as module
from models.fast.vocabulary_loss import vocabulary_loss


def problem(rows, ignored=0.3, bias=True):
    torch.manual_seed(rows)
    decoder = nn.Linear(8, 50, bias=bias)
    states = torch.randn(rows, 8, requires_grad=True)
    targets = torch.randint(0, 50, (rows,)).masked_fill(torch.rand(rows) < ignored, -100)
    return decoder, states, targets


@pytest.mark.parametrize("rows", [1, 7, 16, 40, 57])
@pytest.mark.parametrize("ignored", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("bias", [True, False])
def test_value_and_gradients_equal_cross_entropy(rows, ignored, bias, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 16)
    decoder, states, targets = problem(rows, ignored, bias)
    ours = vocabulary_loss(decoder, states, targets)
    torchs = F.cross_entropy(decoder(states), targets, ignore_index=-100, reduction="sum")
    torch.testing.assert_close(ours, torchs, rtol=1e-5, atol=1e-5)
    given = [states, *decoder.parameters()]
    gradients = [torch.autograd.grad(0.7 * value, given) for value in (ours, torchs)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)


def test_bfloat16_products_and_a_float32_soft_max():
    decoder, states, targets = problem(40)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = vocabulary_loss(decoder, states, targets)
    value.backward()
    assert value.dtype == decoder.weight.grad.dtype == states.grad.dtype == torch.float32
    exact = F.cross_entropy(decoder(states), targets, reduction="sum")
    gradient = torch.autograd.grad(exact, decoder.weight)[0]
    assert value.item() == pytest.approx(exact.item(), rel=0.01)
    assert (decoder.weight.grad - gradient).norm() < 0.02 * gradient.norm()
