"""DCLR against loops over sentences."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from models.contrast import info_nce
from models.objectives import dclr
from tests.methods import build_model, make_batch
from tests.models.test_contrast import softmax


def binary(logits, negative):
    parts = []
    for i, row in enumerate(logits.tolist()):
        shares = softmax([v if j == i or negative[i, j] else 0.0 for j, v in enumerate(row)])
        parts += [-math.log(p if j == i else 1 - p) for j, p in enumerate(shares)]
    return sum(parts) / len(parts)


def test_the_loss_equals_its_formula_and_stays_finite():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 8, generator=generator)
    negative = torch.rand(5, 8, generator=generator) < 0.6
    for kept in (negative, torch.ones_like(negative), torch.zeros_like(negative)):
        loss = dclr.binary_nce(logits, kept)
        assert loss.item() == pytest.approx(binary(logits, kept), rel=1e-5)
    steep = (1000 * logits).requires_grad_()
    dclr.binary_nce(steep, negative).backward()
    assert steep.grad.isfinite().all()


def test_noise_moves_up_the_loss_by_steps_of_the_given_length():
    query, key, noise = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(0)).double()
    before = info_nce(query, key, 0.1, noise)
    moved = dclr.ascended(noise.clone(), query, key, 0.1, 1, 0.01)
    assert (moved - noise).norm(dim=1).tolist() == pytest.approx([0.01] * 5)
    assert info_nce(query, key, 0.1, moved) > before
    further = dclr.ascended(noise.clone(), query, key, 0.1, 4, 0.01)
    assert info_nce(query, key, 0.1, further) > before + 3e-3
    gradient = []
    for row in range(5):  # by finite differences, along each row's step
        nudged = noise + 1e-5 * (moved - noise) * (torch.arange(5) == row)[:, None]
        gradient.append((info_nce(query, key, 0.1, nudged) - before).item())
    assert min(gradient) > 0
    assert torch.equal(dclr.ascended(noise, query, key, 0.1, 0, 0.01), noise)


def test_the_noise_is_standard_normal_and_the_seed_decides_it():
    given = 20000, torch.zeros(1, 4)
    first, same, other = (dclr.standard_normal(seed, *given) for seed in (7, 7, 2**63 - 1))
    assert torch.equal(first, same) and not torch.equal(first, other)
    assert first.mean().abs() < 0.03 and first.std() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("threshold", [0.2, 1.1])
def test_the_term_follows_from_the_vectors(tiny_bert, threshold, monkeypatch):
    """With the encoder as its own complement, and with a threshold that nothing is above."""
    monkeypatch.setattr(dclr, "NOISE_RATE", 0.1)
    flags = {"complement": "self", "complement_pooling": None, "noise_share": 0.5}
    flags |= {"false_above": threshold}
    model, seen = build_model("dclr", tiny_bert, dropout=0.3, **flags), []
    batch = make_batch("dclr", tiny_bert, torch.ones(6, 9))
    model.encoder.register_forward_hook(lambda module, given, made: seen.append(made.pooled))
    output = model(**batch, seed=5)
    query, key = model.projection(seen[0]).unflatten(0, (2, 6)).detach()
    noise = dclr.ascended(dclr.standard_normal(5, 3, query), query, key, 0.1, 4, 0.1)
    logits = normalize(query, dim=-1) @ normalize(torch.cat([key, noise]), dim=-1).T / 0.1
    given = batch["input_ids"][0], batch["attention_mask"][0]
    vectors = normalize(model.eval().encoder.embed(*given), dim=-1)
    noise_counts = torch.ones(6, 3, dtype=torch.bool)
    negative = torch.cat([vectors @ vectors.T <= threshold, noise_counts], dim=1)
    others = ~torch.eye(*negative.shape, dtype=torch.bool)
    assert negative[others].all() == (threshold > 1) and negative[:, :6][others[:, :6]].any()
    assert output.loss.item() == pytest.approx(binary(logits, negative), rel=1e-4)
