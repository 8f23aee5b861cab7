"""SentEval's evaluation of features by a logistic regression: many trained at once, each as alone.

Three ways (senteval/tools/validation.py): of four L2 penalties, the one with the best rounded dev
accuracy (the first if tied) is used for a final fit. Folds are stratified and shuffled with
SentEval's seed, over the rows in SentEval's order.

SentEval fits one `nn.Linear` at a time by minibatch Adam or RMSprop (senteval/tools/classifier.py
with nhid 0). It seeds its random numbers before every fit, so fits on the same number of rows start
from the same weights and draw the same permutations. Such fits are trained together here: the
gradient of the cross entropy is in closed form, and one batched matrix product serves all training
sets and L2 penalties. The global random state is not touched.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from common.progress import progress

SEED = 1111  # SentEval's, for numpy and torch alike
MAX_EPOCH = 200
PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2)
HELD_OUT = 0.05  # share of the training rows used for the early stopping of a final fit


@dataclass(frozen=True)
class Settings:
    """SentEval's classifier parameters.

    Attributes:
        folds: of every cross-validation.
        optimizer: `adam` (learning rate 0.001) or `rmsprop` (0.01), torch's defaults.
        batch_size: rows per minibatch.
        tenacity: checks without a better dev accuracy before stopping; never reset, as in
            SentEval's code.
        epoch_size: epochs between two checks.
    """

    folds: int
    optimizer: str
    batch_size: int
    tenacity: int
    epoch_size: int


_FAST = Settings(folds=5, optimizer="rmsprop", batch_size=128, tenacity=3, epoch_size=2)
MODES = {
    "test": Settings(folds=10, optimizer="adam", batch_size=64, tenacity=5, epoch_size=4),
    "fasttest": _FAST,
    "dev": _FAST,
}


@dataclass(frozen=True)
class Fit:
    """One training set, fitted with every penalty, as row indices of a feature matrix.

    Attributes:
        train: rows to train on, in the order that the permutations refer to, (n,).
        dev: rows for early stopping.
        penalties: L2 factors, the optimizer's weight decay.
        drawn: number of rows that were permuted to split `train` from `dev`; 0 without such a
            split.
    """

    train: np.ndarray
    dev: np.ndarray
    penalties: tuple[float, ...]
    drawn: int = 0


@dataclass(frozen=True)
class Fitted:
    """The best weights of each penalty, bias last, (L, C, D + 1), and their dev accuracy, (L,)."""

    weights: Tensor
    accuracy: np.ndarray

    def predict(self, features: Tensor) -> Tensor:
        """Classes of the rows of (N, D + 1), with the first penalty's weights."""
        return (features @ self.weights[0].T).argmax(1)


@dataclass(frozen=True)
class Outcome:
    """Accuracies in percent, rounded as in SentEval, and predicted test classes.

    Mode `dev` has no test results.
    """

    dev: float
    test: float | None
    predicted: np.ndarray | None


class Judge:
    """Evaluates features (N, D) with labels (N,) in one mode of `MODES`.

    `outer` limits the number of outer folds.
    """

    def __init__(
        self,
        features: np.ndarray,
        labels: np.ndarray,
        mode: str,
        name: str = "",
        device: str = "cpu",
        outer: int | None = None,
    ) -> None:
        self.features = with_ones(features).to(device)
        self.labels = torch.from_numpy(np.asarray(labels, dtype=np.int64)).to(device)
        self.classes = np.asarray(labels)
        self.mode, self.settings = mode, MODES[mode]
        self.name, self.outer = name, outer

    def nested(self) -> Outcome:
        """MR, CR, SUBJ, MPQA: an outer cross-validation for test, an inner one for dev."""
        every = np.arange(len(self.classes))
        outer = self._folds(every)[: self.outer]
        inner = [self._folds(train) for train, _ in outer]
        fits = [Fit(train, dev, PENALTIES) for folds in inner for train, dev in folds]
        fitted = iter(self._fit(fits, "dev"))
        scores = [_mean([next(fitted) for _ in folds]) for folds in inner]  # (L,) each
        dev = _rounded_mean([float(some.max()) for some in scores])
        if self.mode == "dev":
            return Outcome(dev, None, None)
        chosen = [PENALTIES[some.argmax()] for some in scores]
        final = [self._final(train, best) for (train, _), best in zip(outer, chosen, strict=True)]
        predicted = np.full(len(self.classes), -1)
        accuracies = []
        for (_, test), model in zip(outer, self._fit(final, "test"), strict=True):
            predicted[test] = self._predict(model, test)
            accuracies.append(_rounded(100 * (predicted[test] == self.classes[test]).mean()))
        return Outcome(dev, _rounded_mean(accuracies), predicted)

    def crossed(self, train: np.ndarray, test: np.ndarray) -> Outcome:
        """TREC, MRPC: a cross-validation on the training rows for dev, the official test rows."""
        fits = [Fit(part, dev, PENALTIES) for part, dev in self._folds(train)]
        scores = _mean(self._fit(fits, "dev"))
        return self._tested(scores, test, lambda penalty: self._final(train, penalty))

    def split(self, train: np.ndarray, dev: np.ndarray, test: np.ndarray) -> Outcome:
        """SST2: the official dev rows select the penalty and stop the final fit early."""
        scores = _mean(self._fit([Fit(train, dev, PENALTIES)], "dev"))
        return self._tested(scores, test, lambda penalty: Fit(train, dev, (penalty,)))

    def _tested(
        self, scores: np.ndarray, test: np.ndarray, final: Callable[[float], Fit]
    ) -> Outcome:
        if self.mode == "dev":
            return Outcome(float(scores.max()), None, None)
        [model] = self._fit([final(PENALTIES[scores.argmax()])], "test")
        predicted = self._predict(model, test)
        accuracy = _rounded(100 * (predicted == self.classes[test]).mean())
        return Outcome(float(scores.max()), accuracy, predicted)

    def _folds(self, rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        from sklearn.model_selection import StratifiedKFold  # here: a slow import

        folds = StratifiedKFold(self.settings.folds, shuffle=True, random_state=SEED)
        return [(rows[a], rows[b]) for a, b in folds.split(np.zeros(len(rows)), self.classes[rows])]

    def _final(self, train: np.ndarray, penalty: float) -> Fit:
        order = np.random.RandomState(SEED).permutation(len(train))
        held = int(HELD_OUT * len(train))
        return Fit(train[order[held:]], train[order[:held]], (penalty,), drawn=len(train))

    def _fit(self, fits: list[Fit], part: str) -> list[Fitted]:
        total = sum(len(fit.penalties) for fit in fits)
        with progress(total, f"{self.name} {part}".strip(), "fit") as bar:
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
    if len(fitted) == 1:
        return np.array([_rounded(100 * value) for value in fitted[0].accuracy])
    folds = zip(*(model.accuracy for model in fitted), strict=True)
    return np.array([_rounded_mean(values, 100) for values in folds])


def with_ones(features: np.ndarray) -> Tensor:
    """(N, D) -> (N, D + 1) float32 with a last column of ones, the input of the bias."""
    ones = np.ones((len(features), 1))
    return torch.from_numpy(np.concatenate([features, ones], axis=1, dtype=np.float32))


# With torch's defaults, as in SentEval.
OPTIMIZERS = {"adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}


def fit_all(
    features: Tensor, labels: Tensor, fits: list[Fit], settings: Settings, bar: tqdm
) -> list[Fitted]:
    """Train every fit on its rows of `with_ones` features and (N,) labels; `bar` counts models."""
    groups: dict[tuple[int, int], list[int]] = {}
    for number, fit in enumerate(fits):
        groups.setdefault((len(fit.train), fit.drawn), []).append(number)
    done: dict[int, Fitted] = {}
    for numbers in groups.values():
        group = _Group(features, labels, [fits[i] for i in numbers], settings, bar)
        for number, fitted in zip(numbers, group.run(), strict=True):
            done[number] = fitted
    return [done[number] for number in range(len(fits))]


def _initial(dimension: int, classes: int) -> Tensor:
    """The weights of `nn.Linear(dimension, classes)` after `torch.manual_seed(SEED)`, bias last."""
    generator = torch.Generator().manual_seed(SEED)
    weight = torch.empty(classes, dimension)
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
    bound = 1 / math.sqrt(dimension)
    bias = torch.empty(classes, 1).uniform_(-bound, bound, generator=generator)
    return torch.cat([weight, bias], dim=1)


class _Group:
    """Fits on the same number of rows: F training sets, L penalties, C classes, M = L x C outputs.

    The last column of the features is ones, so the bias is the last column of the weights, (F, M, D
    + 1).
    """

    def __init__(
        self, features: Tensor, labels: Tensor, fits: list[Fit], settings: Settings, bar: tqdm
    ) -> None:
        self.features, self.labels, self.fits = features, labels, fits
        self.settings, self.bar = settings, bar
        self.classes = int(labels.max()) + 1
        self.targets = nn.functional.one_hot(labels, self.classes).to(features.dtype)  # (N, C)
        self.penalties = len(fits[0].penalties)
        start = _initial(features.shape[1] - 1, self.classes).to(features.device)
        self.weights = start.repeat(len(fits), self.penalties, 1)
        decay = torch.tensor([fit.penalties for fit in fits], device=features.device)
        self.decay = decay.repeat_interleave(self.classes, dim=1)[:, :, None]  # (F, M, 1)
        self.train = torch.from_numpy(np.stack([fit.train for fit in fits])).to(features.device)
        self.optimizer = OPTIMIZERS[settings.optimizer]([self.weights])
        self.best = np.full((len(fits), self.penalties), -1)  # correct dev rows
        self.stale = np.zeros_like(self.best)
        self.active = np.full(self.best.shape, True)
        self.kept = self.weights.clone()
        self.alive = np.arange(len(fits))  # indices of the fits that are still in the tensors

    def run(self) -> list[Fitted]:
        orders = self._orders()
        epoch = 0
        while self.active.any() and epoch <= MAX_EPOCH:
            for _ in range(self.settings.epoch_size):
                self._epoch(next(orders))
            epoch += self.settings.epoch_size
            self._check()
            self._drop_finished()
        self.bar.update(int(self.active.sum()))
        weights = self.kept.view(len(self.fits), self.penalties, self.classes, -1)
        sizes = np.array([[len(fit.dev)] for fit in self.fits])
        return [Fitted(*row) for row in zip(weights, self.best / sizes, strict=True)]

    def _orders(self) -> Iterator[Tensor]:
        stream = np.random.RandomState(SEED)
        if self.fits[0].drawn:
            stream.permutation(self.fits[0].drawn)
        while True:
            yield torch.from_numpy(stream.permutation(self.train.shape[1])).to(self.features.device)

    @torch.no_grad()
    def _epoch(self, order: Tensor) -> None:
        for rows in self.train[:, order].split(self.settings.batch_size, dim=1):  # (F, B)
            chosen = rows.flatten()
            inputs = self.features.index_select(0, chosen).view(*rows.shape, -1)
            logits = torch.bmm(inputs, self.weights.transpose(1, 2))  # (F, B, M)
            error = logits.view(*rows.shape, self.penalties, self.classes).softmax(-1)
            error -= self.targets.index_select(0, chosen).view(*rows.shape, 1, self.classes)
            error = error.view_as(logits).div_(rows.shape[1])
            self.weights.grad = torch.bmm(error.transpose(1, 2), inputs).addcmul_(
                self.decay, self.weights
            )
            self.optimizer.step()

    @torch.no_grad()
    def _check(self) -> None:
        """Measure the dev accuracy of every active model and keep better weights."""
        for row, number in enumerate(self.alive):
            dev = torch.from_numpy(self.fits[number].dev).to(self.features.device)
            logits = self.features[dev] @ self.weights[row].T
            predicted = logits.view(len(dev), self.penalties, self.classes).argmax(-1)
            correct = (predicted == self.labels[dev][:, None]).sum(0).cpu().numpy()
            better = self.active[number] & (correct > self.best[number])
            stale = self.active[number] & ~better
            self.best[number][better] = correct[better]
            chosen = torch.from_numpy(better.repeat(self.classes)).to(self.features.device)
            self.kept[number][chosen] = self.weights[row][chosen]
            self.active[number] &= ~(stale & (self.stale[number] >= self.settings.tenacity))
            self.stale[number] += stale

    def _drop_finished(self) -> None:
        running = self.active[self.alive].any(1)
        if running.all():
            return
        self.bar.update(int((~running).sum()) * self.penalties)
        keep = torch.from_numpy(running).to(self.features.device)
        state = self.optimizer.state.pop(self.weights)
        self.weights, self.decay = self.weights[keep], self.decay[keep]
        self.train = self.train[keep]
        self.optimizer.param_groups[0]["params"] = [self.weights]
        for name, part in state.items():
            if part.dim():  # not the number of steps
                state[name] = part[keep]
        self.optimizer.state[self.weights] = state
        self.alive = self.alive[running]
