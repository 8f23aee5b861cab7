"""Whitening against the closed form, and its way through a saved folder."""

import numpy as np
import pytest

from baselines.whitening import kernel, moments
from tests.refusals import refused


@pytest.fixture
def vectors():
    """(400, 6) correlated, far from the origin, with standard deviations from 0.01 to 30."""
    rng = np.random.default_rng(0)
    apart = rng.normal(size=(400, 6)) * [30, 5, 1, 0.3, 0.1, 0.01]
    mixed = apart @ np.linalg.qr(rng.normal(size=(6, 6)))[0]
    return (mixed + 40).astype(np.float32)


def test_moments_are_those_of_a_slow_loop(vectors, monkeypatch):
    monkeypatch.setattr("baselines.whitening.BLOCK", 64)
    exact = vectors.astype(np.float64)
    mean = sum(exact) / 400
    stats = moments(vectors)
    assert np.allclose(stats.mean, mean, rtol=1e-12)
    covariance = sum(np.outer(x - mean, x - mean) for x in exact) / 400
    assert np.allclose(stats.covariance, covariance, rtol=1e-9, atol=1e-9)
    assert stats.length == pytest.approx(np.sqrt(np.mean([x @ x for x in exact])))


def test_the_kernel_is_the_closed_form_up_to_signs(vectors):
    values, columns = np.linalg.eigh(np.cov(vectors.astype(np.float64).T, bias=True))
    expected = (columns / np.sqrt(values))[:, ::-1]
    stats = moments(vectors)
    matrix = kernel(stats)
    assert np.abs(np.abs(matrix) - np.abs(expected)).max() < 1e-6 * np.abs(expected).max()
    products = np.abs((matrix * expected).sum(0))
    assert np.allclose(products, (expected**2).sum(0), rtol=1e-5), "one sign a column"
    for k in (1, 4):
        assert np.array_equal(kernel(stats, k), matrix[:, :k]), "the first columns"


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_a_power_leaves_the_rest_of_each_eigenvalue(power, vectors):
    stats = moments(vectors)
    softened = (vectors.astype(np.float64) - stats.mean) @ kernel(stats, power=power)
    covariance, values = softened.T @ softened / 400, np.linalg.eigvalsh(stats.covariance)[::-1]
    assert np.allclose(covariance, np.diag(values ** (1 - power)), rtol=1e-6, atol=1e-6 * values[0])


def test_a_singular_covariance_is_refused_with_its_rank(vectors):
    flat = vectors.copy()
    flat[:, 2] = flat[:, 1] * 0.5  # a direction that is rounding only
    for some, rank in ((vectors[:5], 4), (flat, 5), (np.repeat(vectors[:1], 50, axis=0), 0)):
        said = refused(kernel, moments(some), rank + 1)
        assert f"--dimensions {rank + 1}: " in said and f"vary in {rank} directions" in said
        if rank:
            assert kernel(moments(some)).shape == (6, rank)
