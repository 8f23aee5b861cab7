"""SentEval's transfer tasks: frozen sentence vectors as features of a logistic regression.

Protocol: SentEval (Conneau and Kiela 2018) with the settings of SimCSE's evaluation: mode `test` is what the
papers print; `dev` and `fasttest` are its faster settings. `validation.py` and `logistic.py` beside this file hold
the protocol; the accuracies equal SentEval's on the same features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.metrics import f1_score

from common.errors import BadInput
from eval.task import Encoder, Options, Result, row
from eval.transfer.files import Labelled, read_mrpc, read_sst, read_trec, read_two_files
from eval.transfer.validation import Judge, Outcome


@dataclass(frozen=True)
class TransferTask:
    """A classification set and SentEval's way to judge features on it.

    Attributes:
        name: as the papers print it.
        read: data folder -> split -> examples.
        sizes: the published number of examples of each split.
        options: mode, progress and device.
    """

    name: str
    read: Callable[[Path], dict[str, Labelled]]
    sizes: tuple[int, ...]
    options: Options

    @property
    def split(self) -> str:
        return "dev" if self.options.mode == "dev" else "test"

    def load(self, data_dir: str | Path) -> dict[str, Labelled]:
        """The examples by split; another number than the published one is refused."""
        splits = self.read(Path(data_dir))
        found = tuple(len(part.labels) for part in splits.values())
        if found != self.sizes:
            raise BadInput(
                f"{self.name} has {found} examples ({', '.join(splits)}) under {data_dir}, published are {self.sizes}: "
                "a file is cut or changed; `python -m data.prepare transfer` fetches the original"
            )
        return splits

    def score(self, encode: Encoder, data_dir: str | Path) -> Result:
        """Headline: accuracy in percent; then dev accuracy and, for pairs, F1."""
        splits = self.load(data_dir)
        labels = np.concatenate([part.labels for part in splits.values()])
        parts = np.split(np.arange(len(labels)), np.cumsum(self.sizes)[:-1])
        features = _features(encode, [texts for part in splits.values() for texts in part.texts])
        chosen = self.options
        judge = Judge(features, labels, chosen.mode, self.name, chosen.progress, chosen.device)
        if len(parts) == 1:
            outcome, dev = judge.nested(), parts[0]
        elif len(parts) == 2:
            outcome, dev = judge.crossed(*parts), parts[0]
        else:
            outcome, dev = judge.split(*parts), parts[1]
        return self._result(outcome, labels[parts[-1]], len(dev))

    def _result(self, outcome: Outcome, gold: np.ndarray, dev_size: int) -> Result:
        kind = "mean of folds" if len(self.sizes) == 1 else "single"
        dev_kind = "single" if len(self.sizes) == 3 else "mean of folds"
        of = partial(row, self.name, mode=self.options.mode)
        dev = of("dev", "accuracy", dev_kind, dev_size, outcome.dev)
        if outcome.predicted is None:
            return Result([dev])
        rows = [of("test", "accuracy", kind, len(gold), outcome.test), dev]
        if self.read is read_mrpc:
            f1 = round(100 * float(f1_score(gold, outcome.predicted)), 2)
            rows.append(of("test", "f1", kind, len(gold), f1))
        return Result(rows, {"value": (outcome.predicted == gold).astype(np.float64)})


def _features(encode: Encoder, texts: list[tuple[str, ...]]) -> np.ndarray:
    """The vectors of single sentences, (N, D); |u - v| beside u * v of pairs, (N, 2D)."""
    vectors = np.asarray(encode([text for example in texts for text in example]), dtype=np.float32)
    if len(texts[0]) == 1:
        return vectors
    left, right = vectors[::2], vectors[1::2]
    return np.concatenate([np.abs(left - right), left * right], axis=1)


_TWO_FILES = {
    "MR": ("MR/rt-polarity.pos", "MR/rt-polarity.neg", 10662),
    "CR": ("CR/custrev.pos", "CR/custrev.neg", 3775),
    "SUBJ": ("SUBJ/subj.objective", "SUBJ/subj.subjective", 10000),
    "MPQA": ("MPQA/mpqa.pos", "MPQA/mpqa.neg", 10606),
}


def tasks(options: Options) -> tuple[TransferTask, ...]:
    """The seven sets in the papers' order; sizes as SentEval publishes them."""
    made = [
        TransferTask(name, partial(read_two_files, positive=one, negative=zero), (size,), options)
        for name, (one, zero, size) in _TWO_FILES.items()
    ]
    made.append(TransferTask("SST2", read_sst, (67349, 872, 1821), options))
    made.append(TransferTask("TREC", read_trec, (5452, 500), options))
    made.append(TransferTask("MRPC", read_mrpc, (4076, 1725), options))
    return tuple(made)
