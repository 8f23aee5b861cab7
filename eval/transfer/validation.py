"""SentEval's three ways to evaluate features by a logistic regression (senteval/tools/validation.py).

Of four L2 penalties, the one with the best rounded dev accuracy (the first if tied) is used for a final fit. Folds
are stratified and shuffled with SentEval's seed, over the rows in SentEval's order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from common.progress import progress
from eval.transfer.logistic import SEED, Fit, Fitted, Settings, fit_all, with_ones

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2)
HELD_OUT = 0.05  # share of the training rows used for the early stopping of a final fit

_FAST = Settings(folds=5, optimizer="rmsprop", batch_size=128, tenacity=3, epoch_size=2)
MODES = {
    "test": Settings(folds=10, optimizer="adam", batch_size=64, tenacity=5, epoch_size=4),
    "fasttest": _FAST,
    "dev": _FAST,
}


@dataclass(frozen=True)
class Outcome:
    """Accuracies in percent, rounded as in SentEval, and predicted test classes; mode `dev` has no test results."""

    dev: float
    test: float | None
    predicted: np.ndarray | None


class Judge:
    """Evaluates features (N, D) with labels (N,) in one mode of `MODES`; `outer` limits the number of outer folds."""

    def __init__(
        self,
        features: np.ndarray,
        labels: np.ndarray,
        mode: str,
        name: str = "",
        progress: bool = False,
        device: str = "cpu",
        outer: int | None = None,
    ) -> None:
        self.features = with_ones(features).to(device)
        self.labels = torch.from_numpy(np.asarray(labels, dtype=np.int64)).to(device)
        self.classes = np.asarray(labels)
        self.mode, self.settings = mode, MODES[mode]
        self.name, self.progress, self.outer = name, progress, outer

    def nested(self) -> Outcome:
        """MR, CR, SUBJ, MPQA: an outer cross-validation for test, an inner one on its training rows for dev."""
        every = np.arange(len(self.classes))
        outer = self._folds(every)[: self.outer]
        inner = [self._folds(train) for train, _ in outer]
        fitted = iter(self._fit([Fit(train, dev, PENALTIES) for folds in inner for train, dev in folds], "dev"))
        scores = np.array([_mean([next(fitted) for _ in folds]) for folds in inner])  # (outer, L)
        dev = _rounded_mean(scores.max(1))
        if self.mode == "dev":
            return Outcome(dev, None, None)
        final = [self._final(train, PENALTIES[s.argmax()]) for (train, _), s in zip(outer, scores, strict=True)]
        predicted = np.full(len(self.classes), -1)
        accuracies = []
        for (_, test), model in zip(outer, self._fit(final, "test"), strict=True):
            predicted[test] = self._predict(model, test)
            accuracies.append(_rounded(100 * (predicted[test] == self.classes[test]).mean()))
        return Outcome(dev, _rounded_mean(accuracies), predicted)

    def crossed(self, train: np.ndarray, test: np.ndarray) -> Outcome:
        """TREC, MRPC: a cross-validation on the training rows for dev, the official test rows for test."""
        scores = _mean(self._fit([Fit(part, dev, PENALTIES) for part, dev in self._folds(train)], "dev"))
        return self._tested(scores, test, lambda penalty: self._final(train, penalty))

    def split(self, train: np.ndarray, dev: np.ndarray, test: np.ndarray) -> Outcome:
        """SST2: the official dev rows select the penalty and stop the final fit early."""
        scores = _mean(self._fit([Fit(train, dev, PENALTIES)], "dev"))
        return self._tested(scores, test, lambda penalty: Fit(train, dev, (penalty,)))

    def _tested(self, scores: np.ndarray, test: np.ndarray, final) -> Outcome:
        if self.mode == "dev":
            return Outcome(float(scores.max()), None, None)
        [model] = self._fit([final(PENALTIES[scores.argmax()])], "test")
        predicted = self._predict(model, test)
        accuracy = _rounded(100 * (predicted == self.classes[test]).mean())
        return Outcome(float(scores.max()), accuracy, predicted)

    def _folds(self, rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        folds = StratifiedKFold(self.settings.folds, shuffle=True, random_state=SEED)
        return [(rows[a], rows[b]) for a, b in folds.split(np.zeros(len(rows)), self.classes[rows])]

    def _final(self, train: np.ndarray, penalty: float) -> Fit:
        order = np.random.RandomState(SEED).permutation(len(train))
        held = int(HELD_OUT * len(train))
        return Fit(train[order[held:]], train[order[:held]], (penalty,), drawn=len(train))

    def _fit(self, fits: list[Fit], part: str) -> list[Fitted]:
        total = sum(len(fit.penalties) for fit in fits)
        title = f"{self.name} {part}".strip()
        with progress(total, title, "fit", self.progress) as bar:
            return fit_all(self.features, self.labels, fits, self.settings, bar)

    def _predict(self, model: Fitted, rows: np.ndarray) -> np.ndarray:
        chosen: Tensor = torch.from_numpy(rows).to(self.features.device)
        return model.predict(self.features[chosen]).cpu().numpy()


def _rounded(value: float) -> float:
    return round(float(value), 2)


def _rounded_mean(values: Sequence[float], scale: float = 1) -> float:
    """Rounded by numpy, like SentEval's means: 80.035 becomes 80.04, not 80.03."""
    return float(np.round(scale * np.mean(values), 2))


def _mean(fitted: list[Fitted]) -> np.ndarray:
    """Mean dev accuracy of each penalty in percent, rounded before comparison as in SentEval."""
    folds = zip(*(model.accuracy for model in fitted), strict=True)
    return np.array([_rounded_mean(values, 100) if len(values) > 1 else _rounded(100 * values[0]) for values in folds])
