"""Fitting a flow: the likelihood rises, a seed repeats, nothing else changes."""

from dataclasses import replace

import pytest
import torch

from baselines.flow import Settings, fit
from common.errors import BadInput, NonFinite

SMALL = Settings(steps=3, hidden=16, epochs=2)


@pytest.fixture
def vectors():
    """(600, 4): entry 3 is a curve of entry 0, which no linear map makes Gaussian."""
    x = torch.randn(600, 4, generator=torch.Generator().manual_seed(0))
    x[:, 3] = x[:, 0].square() + 0.1 * x[:, 3]
    return x * torch.tensor([1.0, 10, 0.1, 1]) + 5


def test_training_raises_the_likelihood_above_that_of_a_gaussian(vectors):
    flow, before, after = fit(vectors, Settings(steps=4, hidden=16, epochs=10, learning_rate=0.01))
    gaussian = torch.distributions.MultivariateNormal(vectors.mean(0), torch.cov(vectors.T))
    assert after < before - 0.5
    assert after < -float(gaussian.log_prob(vectors).mean()) - 0.3
    assert after == pytest.approx(-float(flow.log_likelihood(vectors).mean().detach()), abs=1e-4)


def test_a_seed_repeats_and_the_global_state_stays(vectors):
    state = torch.get_rng_state()
    first, second = fit(vectors, SMALL), fit(vectors, SMALL)
    other = fit(vectors, replace(SMALL, seed=7))
    assert torch.equal(torch.get_rng_state(), state)
    assert first[1:] == second[1:]
    weights = second.flow.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in first.flow.state_dict().items())
    assert other.after != first.after


def test_what_cannot_be_trained_is_refused(vectors):
    for settings in ({"epochs": 0}, {"learning_rate": 0.0}, {"seed": -1}):
        with pytest.raises(BadInput, match=f"--{next(iter(settings))}"):
            Settings(**settings)
    with pytest.raises(NonFinite, match="--learning_rate"):
        fit(vectors, Settings(learning_rate=1e9, epochs=3))
    vectors[:, 2] = 1.5
    with pytest.raises(NonFinite, match="an entry of all vectors is the same"):
        fit(vectors, SMALL)
