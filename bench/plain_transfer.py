"""SentEval's transfer protocol the slow way: one `nn.Linear`, one autograd step, one fit after the other.

The oracle of eval/transfer, and what `python -m bench transfer` measures it against.
It seeds the global generators before every fit, as SentEval does.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold
from torch import nn

SEED = 1111
PENALTIES = [10.0**power for power in (-5, -4, -3, -2)]


class Classifier:
    """One logistic regression; `mode` is a settings record with SentEval's parameter names."""

    def __init__(self, settings, dimension: int, classes: int, penalty: float) -> None:
        np.random.seed(SEED)
        torch.manual_seed(SEED)
        self.settings = settings
        self.linear = nn.Linear(dimension, classes)
        kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.RMSprop
        self.optimizer = kind(self.linear.parameters(), weight_decay=penalty)

    def fit(self, x: np.ndarray, y: np.ndarray, dev: tuple[np.ndarray, np.ndarray] | None = None) -> None:
        if dev is None:
            order, held = np.random.permutation(len(x)), int(0.05 * len(x))
            dev = x[order[:held]], y[order[:held]]
            x, y = x[order[held:]], y[order[held:]]
        x, y = torch.from_numpy(x), torch.from_numpy(y)
        best, stale, epoch = -1.0, 0, 0
        while epoch <= 200:
            for _ in range(self.settings.epoch_size):
                self._epoch(x, y)
            epoch += self.settings.epoch_size
            accuracy = self.score(*dev)
            if accuracy > best:
                best, kept = accuracy, copy.deepcopy(self.linear)
            else:
                if stale >= self.settings.tenacity:
                    break
                stale += 1
        self.linear = kept

    def _epoch(self, x: torch.Tensor, y: torch.Tensor) -> None:
        order = torch.from_numpy(np.random.permutation(len(x)))
        for start in range(0, len(x), self.settings.batch_size):
            chosen = order[start : start + self.settings.batch_size]
            loss = nn.functional.cross_entropy(self.linear(x[chosen]), y[chosen])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.linear(torch.from_numpy(x)).max(1)[1].numpy()

    def score(self, x: np.ndarray, y: np.ndarray) -> float:
        return float((self.predict(x) == y).sum()) / len(y)


def _folds(settings, y: np.ndarray):
    return StratifiedKFold(settings.folds, shuffle=True, random_state=SEED).split(np.zeros(len(y)), y)


def _best_penalty(settings, x: np.ndarray, y: np.ndarray, classes: int) -> tuple[float, float]:
    scores = []
    for penalty in PENALTIES:
        found = []
        for train, dev in _folds(settings, y):
            one = Classifier(settings, x.shape[1], classes, penalty)
            one.fit(x[train], y[train], (x[dev], y[dev]))
            found.append(one.score(x[dev], y[dev]))
        scores.append(round(100 * np.mean(found), 2))
    return PENALTIES[int(np.argmax(scores))], max(scores)


def nested(settings, x: np.ndarray, y: np.ndarray, outer: int | None = None) -> tuple[float, float]:
    """Dev and test accuracy of a nested cross-validation; `outer` limits the outer folds."""
    classes, devs, tests = int(y.max()) + 1, [], []
    for train, test in list(_folds(settings, y))[:outer]:
        penalty, dev = _best_penalty(settings, x[train], y[train], classes)
        one = Classifier(settings, x.shape[1], classes, penalty)
        one.fit(x[train], y[train])
        devs.append(dev)
        tests.append(round(100 * one.score(x[test], y[test]), 2))
    return float(round(np.mean(devs), 2)), float(round(np.mean(tests), 2))


def crossed(settings, x: np.ndarray, y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray) -> tuple[float, float]:
    """Dev accuracy by cross-validation of the training rows, and test accuracy on the official rows."""
    classes = int(y.max()) + 1
    penalty, dev = _best_penalty(settings, x, y, classes)
    one = Classifier(settings, x.shape[1], classes, penalty)
    one.fit(x, y)
    return dev, round(100 * one.score(test_x, test_y), 2)


def split(settings, train: tuple, dev: tuple, test: tuple) -> tuple[float, float]:
    """Dev and test accuracy with official dev rows."""
    classes, scores = int(train[1].max()) + 1, []
    for penalty in PENALTIES:
        one = Classifier(settings, train[0].shape[1], classes, penalty)
        one.fit(*train, dev)
        scores.append(round(100 * one.score(*dev), 2))
    one = Classifier(settings, train[0].shape[1], classes, PENALTIES[int(np.argmax(scores))])
    one.fit(*train, dev)
    return max(scores), round(100 * one.score(*test), 2)
