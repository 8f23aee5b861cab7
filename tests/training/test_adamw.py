"""transformers' AdamW against a loop over plain numbers."""

import math

import pytest
import torch
from torch import nn

from training.adamw import TransformersAdamW

SETTINGS = {"lr": 3e-2, "betas": (0.9, 0.99), "eps": 1e-3, "weight_decay": 0.1}


def by_hand(value, gradients, correct_bias, lr, betas, eps, weight_decay):
    m = v = 0.0
    for t, g in enumerate(gradients, start=1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        size = lr * math.sqrt(1 - betas[1] ** t) / (1 - betas[0] ** t) if correct_bias else lr
        value = value - size * m / (math.sqrt(v) + eps)
        value = value - lr * weight_decay * value
    return value


def start():
    return nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))


@pytest.mark.parametrize("correct_bias", [True, False])
def test_adamw_equals_a_loop_over_plain_numbers(correct_bias):
    parameter, drawn = start(), torch.Generator().manual_seed(1)
    rows = torch.randn(12, 3, generator=drawn, dtype=torch.float64)
    columns = zip(parameter.tolist(), rows.T.tolist(), strict=True)
    expected = [by_hand(value, column, correct_bias, **SETTINGS) for value, column in columns]
    optimizer = TransformersAdamW([parameter], correct_bias=correct_bias, **SETTINGS)
    for row in rows:
        parameter.grad = row
        optimizer.step()
    assert parameter.tolist() == pytest.approx(expected, rel=1e-12)


def test_a_parameter_without_a_gradient_is_left_alone_and_its_state_too():
    parameter = start()
    optimizer = TransformersAdamW([parameter], **SETTINGS)
    optimizer.step()
    assert torch.equal(parameter, start()) and not optimizer.state
