"""The flow is a density; fitting it raises the likelihood, and a seed repeats."""

from dataclasses import replace

import pytest
import torch

from baselines.flow import Flow, Settings, fit
from common.errors import NonFinite
from tests.refusals import refused

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
        assert f"--{next(iter(settings))}" in refused(Settings, **settings)
    with pytest.raises(NonFinite, match="--learning_rate"):
        fit(vectors, Settings(learning_rate=1e9, epochs=3))
    vectors[:, 2] = 1.5
    assert "an entry of all vectors is the same" in refused(fit, vectors, SMALL, error=NonFinite)


def made(width=5, seed=0):
    """A flow with every weight moved away from its start, so that no coupling is the identity."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        flow = Flow(width, steps=3, hidden=8)
        with torch.no_grad():
            for parameter in flow.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return flow


@pytest.fixture
def few():
    return torch.randn(6, 5, generator=torch.Generator().manual_seed(1)) * 3 + 2


@pytest.mark.parametrize("width", [2, 5])
def test_the_log_determinant_is_that_of_the_jacobian(width, few):
    flow, vectors = made(width).double().requires_grad_(False), few[:, :width].double()
    _, log_det = flow.transform(vectors)
    for row in vectors:
        jacobian = torch.autograd.functional.jacobian(lambda vector: flow(vector[None])[0], row)
        torch.testing.assert_close(torch.linalg.slogdet(jacobian)[1], log_det, rtol=0, atol=1e-10)


def test_the_likelihood_is_a_density():
    """Its integral over the plane is one."""
    line = torch.linspace(-14, 14, 561, dtype=torch.float64)
    plane = torch.cartesian_prod(line, line)
    with torch.no_grad():
        density = made(2).double().log_likelihood(plane).exp()
    assert float(density.sum()) * float(line[1] - line[0]) ** 2 == pytest.approx(1, abs=1e-3)


def test_act_norm_starts_with_mean_zero_and_variance_one(few):
    flow = made()
    flow.initialise(few)
    first = flow.steps[0]
    normed = (few + first.bias) * first.log_scale.exp()
    assert normed.mean(0).abs().max() < 1e-6
    assert (normed.std(0, correction=0) - 1).abs().max() < 1e-5
