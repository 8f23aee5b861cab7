"""SentEval's transfer tasks: frozen sentence vectors as features of a logistic regression.

Protocol: SentEval (Conneau and Kiela 2018) with the settings of SimCSE's evaluation: mode `test` is
that of the papers; `dev` and `fasttest` are faster. `validation.py` implements the protocol; the
accuracies equal SentEval's on the same features.

SentEval sorts the examples of a split by number of white-space words, then label (for pairs: words
of the first sentence, words of the second, label). Its folds depend on that order, so it is part of
the protocol. The older sets are read as Latin-1, as in SentEval.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from common.errors import BadInput
from eval.encode import Encoder
from eval.scores import Result, example_ids, row
from eval.text_files import DOWNSTREAM, read_lines, tidy
from eval.transfer.validation import Judge

BINARY = ("0", "1")
TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
Example = tuple[tuple[str, ...], int]  # sentences and class


@dataclass(frozen=True)
class Examples:
    """Sentences, one or two per row, and their classes."""

    texts: list[tuple[str, ...]]
    labels: list[int]


def _ordered(rows: list[Example]) -> Examples:
    rows = sorted(rows, key=lambda row: (*(len(text.split()) for text in row[0]), row[1]))
    return Examples([texts for texts, _ in rows], [label for _, label in rows])


def read_two_files(positive: str, negative: str, data_dir: Path) -> dict[str, Examples]:
    """MR, CR, SUBJ, MPQA: one file per class; an empty line is an empty sentence."""
    rows: list[Example] = []
    for label, file in ((1, positive), (0, negative)):
        lines = read_lines(data_dir / DOWNSTREAM / file, "latin-1")
        rows += [((tidy(line),), label) for line in lines]
    return {"all": _ordered(rows)}


def read_sst(data_dir: Path) -> dict[str, Examples]:
    """SST2: sentence, tab, 0 or 1; official train, dev and test."""
    splits = {}
    for split in ("train", "dev", "test"):
        lines = read_lines(data_dir / DOWNSTREAM / "SST" / "binary" / f"sentiment-{split}")
        rows = [line.strip().split("\t") for line in lines]
        splits[split] = _ordered([((tidy(text),), BINARY.index(label)) for text, label in rows])
    return splits


def read_trec(data_dir: Path) -> dict[str, Examples]:
    """TREC: `COARSE:fine question`; the label is the coarse class."""
    splits = {}
    for split, file in (("train", "train_5500.label"), ("test", "TREC_10.label")):
        lines = read_lines(data_dir / DOWNSTREAM / "TREC" / file, "latin-1")
        rows = [line.strip().split(" ", 1) for line in lines]
        splits[split] = _ordered(
            [((tidy(text),), TREC_CLASSES.index(kind.split(":")[0])) for kind, text in rows]
        )
    return splits


def read_mrpc(data_dir: Path) -> dict[str, Examples]:
    """MRPC: a header, then label, two ids and two sentences, without quoting."""
    splits = {}
    for split in ("train", "test"):
        _, *lines = read_lines(data_dir / DOWNSTREAM / "MRPC" / f"msr_paraphrase_{split}.txt")
        rows = [line.strip().split("\t") for line in lines]
        splits[split] = _ordered(
            [((tidy(row[3]), tidy(row[4])), BINARY.index(row[0])) for row in rows]
        )
    return splits


@dataclass(frozen=True)
class TransferTask:
    """A classification set, scored with SentEval's protocol.

    Attributes:
        name: as in the papers.
        read: data folder -> split -> examples.
        sizes: the published number of examples of each split.
        mode: a key of `eval.transfer.validation.MODES`.
        device: where classifiers are trained.
        metric: its name in rows; those with one name are averaged.
    """

    name: str
    read: Callable[[Path], dict[str, Examples]]
    sizes: tuple[int, ...]
    mode: str = "test"
    device: str = "cpu"
    metric: str = "accuracy"

    @property
    def split(self) -> str:
        return "dev" if self.mode == "dev" else "test"

    def load(self, data_dir: str | Path) -> dict[str, Examples]:
        """The examples by split; BadInput for a malformed line or other numbers than published."""
        changed = (
            "a file is truncated or changed: `python -m data.prepare transfer` downloads the "
            "original"
        )
        try:
            splits = self.read(Path(data_dir))
        except (ValueError, IndexError) as error:
            raise BadInput(f"{self.name} in {data_dir} has a malformed line; {changed}") from error
        sizes = tuple(len(part.labels) for part in splits.values())
        if sizes != self.sizes:
            wrong = f"{sizes} examples ({', '.join(splits)}) instead of {self.sizes}"
            raise BadInput(f"{self.name} in {data_dir} has {wrong}; {changed}")
        return splits

    def score(self, encode: Encoder, data_dir: str | Path) -> Result:
        """Headline: accuracy in percent; then dev accuracy and, for pairs, F1."""
        splits = self.load(data_dir)
        labels = np.concatenate([part.labels for part in splits.values()])
        parts = np.split(np.arange(len(labels)), np.cumsum(self.sizes)[:-1])
        texts = [text for part in splits.values() for text in part.texts]
        sentences = [text for example in texts for text in example]
        vectors = np.asarray(encode(sentences), dtype=np.float32)
        if len(texts[0]) == 2:  # a pair: |u - v| and u * v, (2N, D) -> (N, 2D)
            left, right = vectors[::2], vectors[1::2]
            vectors = np.concatenate([np.abs(left - right), left * right], axis=1)
        judge = Judge(vectors, labels, self.mode, self.name, self.device)
        folds, single = "mean of folds", "single"
        if len(parts) == 1:
            outcome, dev, how_dev, how = judge.nested(), parts[0], folds, folds
        elif len(parts) == 2:
            outcome, dev, how_dev, how = judge.crossed(*parts), parts[0], folds, single
        else:
            outcome, dev, how_dev, how = judge.split(*parts), parts[1], single, single
        make_row = partial(row, self.name, mode=self.mode)
        rows = [make_row("dev", self.metric, how_dev, len(dev), outcome.dev)]
        if outcome.test is None or outcome.predicted is None:
            return Result(rows)
        gold = labels[parts[-1]]
        rows.insert(0, make_row("test", self.metric, how, len(gold), outcome.test))
        if self.read is read_mrpc:
            from sklearn.metrics import f1_score  # here: a slow import

            f1 = round(100 * float(f1_score(gold, outcome.predicted)), 2)
            rows.append(make_row("test", "f1", how, len(gold), f1))
        examples = example_ids((texts[number], int(labels[number])) for number in parts[-1])
        right = (outcome.predicted == gold).astype(np.float64)
        return Result(rows, {"value": right, "example": examples})


_SETS: tuple[tuple[str, Callable[[Path], dict[str, Examples]], tuple[int, ...]], ...] = (
    ("MR", partial(read_two_files, "MR/rt-polarity.pos", "MR/rt-polarity.neg"), (10662,)),
    ("CR", partial(read_two_files, "CR/custrev.pos", "CR/custrev.neg"), (3775,)),
    ("SUBJ", partial(read_two_files, "SUBJ/subj.objective", "SUBJ/subj.subjective"), (10000,)),
    ("MPQA", partial(read_two_files, "MPQA/mpqa.pos", "MPQA/mpqa.neg"), (10606,)),
    ("SST2", read_sst, (67349, 872, 1821)),
    ("TREC", read_trec, (5452, 500)),
    ("MRPC", read_mrpc, (4076, 1725)),
)


def tasks(mode: str = "test", device: str = "cpu") -> tuple[TransferTask, ...]:
    """The seven sets in the papers' order; sizes as published by SentEval."""
    return tuple(TransferTask(name, read, sizes, mode, device) for name, read, sizes in _SETS)
