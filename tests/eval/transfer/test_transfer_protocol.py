"""Batched fits against one model at a time, digit for digit."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from eval.transfer.validation import MODES, Fit, Judge, Settings, fit_all, with_ones
from tests.eval.transfer import senteval as plain


def rows(count=100, dimension=12, classes=2, seed=0, signal=0.5):
    """Noisy features: about two thirds of the rows can be told apart, so every digit counts."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    centres = rng.normal(size=(classes, dimension)) * signal
    return (centres[labels] + rng.normal(size=(count, dimension))).astype(np.float32), labels


@pytest.mark.parametrize(("mode", "outer"), [("test", 1), ("fasttest", None)])
def test_nested_cross_validation_equals_one_model_at_a_time(mode, outer):
    x, y = rows()
    judged = Judge(x, y, mode, outer=outer).nested()
    assert (judged.dev, judged.test) == plain.nested(MODES[mode], x, y, outer)
    if mode == "fasttest":
        assert Judge(x, y, "dev").nested().dev == judged.dev
        assert (judged.predicted >= 0).all()
        assert judged.test == pytest.approx(100 * (judged.predicted == y).mean(), abs=0.5)


@pytest.mark.parametrize("mode", ["test", "fasttest"])
def test_cross_validation_of_six_classes_equals_one_model_at_a_time(mode):
    x, y = rows(150, 12, 6, seed=1)
    train, test = np.arange(110), np.arange(110, 150)
    judged = Judge(x, y, mode).crossed(train, test)
    expected = plain.crossed(MODES[mode], x[train], y[train], x[test], y[test])
    assert (judged.dev, judged.test) == expected
    assert judged.test == round(100 * float((judged.predicted == y[test]).mean()), 2)


@pytest.mark.parametrize("mode", ["test", "fasttest"])
def test_official_splits_equal_one_model_at_a_time(mode):
    x, y = rows(200, 12, seed=2)
    parts = np.split(np.arange(200), [130, 165])
    judged = Judge(x, y, mode).split(*parts)
    assert (judged.dev, judged.test) == plain.split(MODES[mode], *((x[p], y[p]) for p in parts))


def test_weights_of_every_model_equal_those_trained_alone():
    x, y = rows(200, 8, 3, seed=3)
    settings = Settings(folds=3, optimizer="adam", batch_size=32, tenacity=1, epoch_size=1)
    order = np.random.default_rng(0).permutation(200)
    fits = [
        Fit(order[:120], order[120:], (1e-5, 1e-2)),
        Fit(order[50:170], order[:50], (1e-4, 1e-3)),
        Fit(order[:121], order[121:], (1e-5, 1e-2)),
    ]
    counted = []
    bar = SimpleNamespace(update=counted.append)
    together = fit_all(with_ones(x), torch.from_numpy(y), fits, settings, bar)
    for fit, fitted in zip(fits, together, strict=True):
        for number, penalty in enumerate(fit.penalties):
            alone = plain.Classifier(settings, 8, 3, penalty)
            alone.fit(x[fit.train], y[fit.train], (x[fit.dev], y[fit.dev]))
            weight, bias = fitted.weights[number].split([8, 1], dim=1)
            linear = alone.linear
            torch.testing.assert_close(weight, linear.weight.data, atol=2e-6, rtol=1e-4)
            torch.testing.assert_close(bias[:, 0], linear.bias.data, atol=2e-6, rtol=1e-4)
            assert fitted.accuracy[number] == alone.score(x[fit.dev], y[fit.dev])
    assert sum(counted) == 6


def test_global_random_state_is_left_alone():
    x, y = rows(60)
    torch.manual_seed(5)
    np.random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    Judge(x, y, "fasttest").nested()
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()
