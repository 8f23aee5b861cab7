"""The contrastive losses against their formulas written as loops, and closed forms."""

import math

import pytest
import torch
import torch.nn.functional as F

from models.contrast import info_nce, mean_cosine, uniformity
from models.objectives import consert, cropping, mirror_bert


def softmax(values):
    total = sum(math.exp(v) for v in values)
    return [math.exp(v) / total for v in values]


def cosine(a, b):
    a, b = a.tolist(), b.tolist()
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def slow_info_nce(query, key, temperature, negatives=(), log_alpha=0.0):
    """Equations 1 and 8 of SimCSE, term by term in plain Python floats."""
    total = 0.0
    for i, q in enumerate(query):
        scores = [cosine(q, k) / temperature for k in (*key, *negatives)]
        if log_alpha:  # alpha times exp(s) of the sentence's own hard negative
            scores[len(key) + i] += log_alpha
        total -= math.log(softmax(scores)[i])
    return total / len(query)


def slow_nt_xent(first, second, temperature):
    """Equation 1 of ConSERT: each vector of both views against all others, averaged over 2N."""
    total = 0.0
    for i in range(len(first)):
        a, b = first[i : i + 1], second[i : i + 1]
        others = [v for view in (first, second) for j, v in enumerate(view) if j != i]
        total += slow_info_nce(a, b, temperature, others) + slow_info_nce(b, a, temperature, others)
    return total / len(first) / 2


def slow_both_ways(first, second, temperature):
    ways = (first, second), (second, first)
    return sum(slow_info_nce(*way, temperature) for way in ways) / 2


@pytest.mark.parametrize(
    ("rows", "extra", "temperature", "log_alpha"),
    [(1, 2, 0.05, 0), (5, 0, 0.05, 0), (8, 3, 0.5, 0), (4, 9, 1.0, 0), (6, 6, 0.5, 1.5)],
)
def test_info_nce_equals_the_slow_loop(rows, extra, temperature, log_alpha):
    torch.manual_seed(rows)
    query, key, negatives = torch.randn(rows, 7), torch.randn(rows, 7), torch.randn(extra, 7)
    fast = info_nce(query, key, temperature, negatives if extra else None, log_alpha)
    slow = slow_info_nce(query, key, temperature, negatives, log_alpha)
    assert fast.item() == pytest.approx(slow, rel=1e-4, abs=1e-6)


METHODS = [(mirror_bert, 1, slow_nt_xent), (cropping, 1, slow_both_ways)]
METHODS += [(consert, 2, slow_nt_xent)]  # the official code adds both directions up


@pytest.mark.parametrize(("method", "factor", "formula"), METHODS)
def test_a_method_s_loss_of_two_views_is_its_formula(method, factor, formula):
    first, second = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1))
    [made] = method.METHOD.build(method.Arguments(temperature=0.3), None, None, None)
    expected = factor * formula(first, second, 0.3)
    assert made.loss(first, second).item() == pytest.approx(expected, rel=1e-5)


def test_similarities_are_float32_under_autocast():
    """At tau 0.05 bfloat16 cosines would move this loss by far more than the bound."""
    torch.manual_seed(0)
    query = torch.randn(8, 16)
    key = query + 0.01 * torch.randn(8, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = info_nce(query, key, 0.05).item()
    assert inside == pytest.approx(info_nce(query, key, 0.05).item(), abs=1e-7)


def test_spread_measures_equal_their_definitions_over_pairs(monkeypatch):
    monkeypatch.setattr("models.contrast._AT_ONCE", 4)
    torch.manual_seed(1)
    x = F.normalize(torch.randn(9, 4), dim=-1)
    pairs = [(i, j) for i in range(9) for j in range(9) if i != j]
    cosines = [(x[i] @ x[j]).item() for i, j in pairs]
    near = [math.exp(-2 * (x[i] - x[j]).square().sum().item()) for i, j in pairs]
    assert mean_cosine(x * 3).item() == pytest.approx(sum(cosines) / len(pairs), abs=1e-5)
    assert uniformity(x * 3).item() == pytest.approx(math.log(sum(near) / len(pairs)), abs=1e-5)
    assert uniformity(torch.ones(5, 3)).item() == pytest.approx(0, abs=1e-5)
