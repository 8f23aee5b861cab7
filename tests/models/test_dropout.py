"""Dropout by random bits: rate, gradient, independence, attention against plain operations."""

import pytest
import torch

from models.fast.dropout import attend, drop


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.1, 0.5, 0.9, 0.99999])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rate_scale_and_gradient(rate, dtype):
    torch.manual_seed(0)
    count = 1_000_003  # no multiple of the four units that one draw serves
    x = torch.ones(count, dtype=dtype, requires_grad=True)
    made = drop(x, rate)
    made.backward(torch.full_like(made, 2))
    share = (made == 0).float().mean().item()
    assert abs(share - rate) < 5 * (rate * (1 - rate) / count) ** 0.5 + 2**-17
    assert torch.equal(x.grad, 2 * made.detach())
    scales = made[made != 0].unique().float()
    if rate < 0.999:
        bound = 1e-4 if dtype == torch.float32 else 4e-3
        assert scales.tolist() == pytest.approx([1 / (1 - rate)], rel=bound)


def test_units_are_independent_within_a_draw_and_over_a_row():
    """Correlations at the distances at which bits are shared, against independent units."""
    torch.manual_seed(1)
    dropped = (drop(torch.ones(400_000), 0.3) == 0).float() - 0.3
    for distance in (1, 2, 3, 4, 5, 8, 16, 64):
        correlation = (dropped[distance:] * dropped[:-distance]).mean() / (0.3 * 0.7)
        assert abs(correlation) < 5 / 400_000**0.5


def _plain_attention(query, key, value, keys, rate, scaling):
    """The same with torch's own operations, and the dropped units of `drop` on ones."""
    scores = scaling * query @ key.transpose(2, 3)
    weights = scores.masked_fill(~keys, float("-inf")).softmax(-1)
    return weights * (1.0 if rate is None else drop(torch.ones_like(weights), rate)) @ value


@pytest.mark.parametrize("rates", [None, 0.0, 0.3, torch.tensor([0.0, 0.2, 0.7]).view(3, 1, 1, 1)])
def test_attention_and_its_gradients_equal_plain_operations(rates):
    generator = torch.Generator().manual_seed(2)
    *given, gradient = torch.randn(4, 3, 5, 2, 4, generator=generator).double()
    keys = torch.ones(3, 1, 1, 5, dtype=torch.bool)
    keys[1, ..., 3:] = False
    results = []
    for attention in (attend, _plain_attention):
        parts = [part.transpose(1, 2).clone().requires_grad_() for part in given]
        torch.manual_seed(7)
        made = attention(*parts, keys, rates, 0.5)
        made.backward(gradient.transpose(1, 2))
        results.append([made, *(part.grad for part in parts)])
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-12)
