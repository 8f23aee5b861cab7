"""SentEval's transfer protocol, one fit after the other: the oracle of eval/transfer, which trains
all fits together. One `nn.Linear` is trained by autograd; the global generators are seeded before
every fit, like SentEval."""

import copy

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold
from torch import nn

SEED = 1111
PENALTIES = [10.0**power for power in (-5, -4, -3, -2)]


class Classifier:
    """One logistic regression with `eval.transfer.validation.Settings`."""

    def __init__(self, settings, dimension, classes, penalty):
        np.random.seed(SEED)
        torch.manual_seed(SEED)
        self.settings = settings
        self.linear = nn.Linear(dimension, classes)
        algorithm = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.RMSprop
        self.optimizer = algorithm(self.linear.parameters(), weight_decay=penalty)

    def fit(self, x, y, dev=None):
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
        return self

    def _epoch(self, x, y):
        order = torch.from_numpy(np.random.permutation(len(x)))
        for start in range(0, len(x), self.settings.batch_size):
            chosen = order[start : start + self.settings.batch_size]
            loss = nn.functional.cross_entropy(self.linear(x[chosen]), y[chosen])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def predict(self, x):
        return self.linear(torch.from_numpy(x)).max(1)[1].numpy()

    def score(self, x, y):
        return float((self.predict(x) == y).sum()) / len(y)


def _folds(settings, y):
    folds = StratifiedKFold(settings.folds, shuffle=True, random_state=SEED)
    return folds.split(np.zeros(len(y)), y)


def _best_penalty(settings, x, y, classes):
    scores = []
    for penalty in PENALTIES:
        accuracies = []
        for train, dev in _folds(settings, y):
            fitted = Classifier(settings, x.shape[1], classes, penalty)
            fitted.fit(x[train], y[train], (x[dev], y[dev]))
            accuracies.append(fitted.score(x[dev], y[dev]))
        scores.append(round(100 * np.mean(accuracies), 2))
    return PENALTIES[int(np.argmax(scores))], max(scores)


def nested(settings, x, y, outer=None):
    """Dev and test accuracy of a nested cross-validation; `outer` limits the outer folds."""
    folds = list(_folds(settings, y))[:outer]
    results = [crossed(settings, x[train], y[train], x[test], y[test]) for train, test in folds]
    dev, test = (float(round(np.mean(side), 2)) for side in zip(*results, strict=True))
    return dev, test


def crossed(settings, x, y, test_x, test_y):
    """Dev accuracy by cross-validation on the training rows, test accuracy on the official ones."""
    classes = int(y.max()) + 1
    penalty, dev = _best_penalty(settings, x, y, classes)
    fitted = Classifier(settings, x.shape[1], classes, penalty).fit(x, y)
    return dev, round(100 * fitted.score(test_x, test_y), 2)


def split(settings, train, dev, test):
    """Dev and test accuracy with official dev rows."""
    size, scores = (train[0].shape[1], int(train[1].max()) + 1), []
    for penalty in PENALTIES:
        fitted = Classifier(settings, *size, penalty).fit(*train, dev)
        scores.append(round(100 * fitted.score(*dev), 2))
    best = PENALTIES[int(np.argmax(scores))]
    fitted = Classifier(settings, *size, best).fit(*train, dev)
    return max(scores), round(100 * fitted.score(*test), 2)
