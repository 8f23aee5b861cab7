"""Readers of the transfer sets in SentEval's folder layout and in SentEval's order.

SentEval sorts the examples of a split by number of words, then label (for pairs: words of the first, of the
second, label); its folds are cut from that order, so it is part of the protocol. Words are what white space
separates. The older sets are Latin-1, as SentEval reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from common.errors import BadInput
from eval.lines import read_lines
from eval.task import DOWNSTREAM

TREC_CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")


@dataclass(frozen=True)
class Labelled:
    """Examples of one or two sentences and their classes, row by row."""

    texts: list[tuple[str, ...]]
    labels: list[int]


def _ordered(rows: list[tuple[tuple[str, ...], int]]) -> Labelled:
    rows = sorted(rows, key=lambda row: (*(len(text.split()) for text in row[0]), row[1]))
    return Labelled([texts for texts, _ in rows], [label for _, label in rows])


def _tidy(text: str) -> str:
    return " ".join(text.split())


def read_two_files(data_dir: Path, positive: str, negative: str) -> dict[str, Labelled]:
    """MR, CR, SUBJ, MPQA: a file a class; an empty line is an empty sentence, as in SentEval."""
    rows = []
    for label, file in ((1, positive), (0, negative)):
        rows += [((_tidy(line),), label) for line in read_lines(data_dir / DOWNSTREAM / file, "latin-1")]
    return {"all": _ordered(rows)}


def read_sst(data_dir: Path) -> dict[str, Labelled]:
    """SST2: sentence, tab, 0 or 1; official train, dev and test."""
    return {split: _sst_split(data_dir / DOWNSTREAM / f"SST/binary/sentiment-{split}") for split in _SPLITS}


_SPLITS = ("train", "dev", "test")


def _sst_split(path: Path) -> Labelled:
    rows = []
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.strip().split("\t")
        if len(columns) != 2 or columns[1] not in ("0", "1"):
            raise BadInput(f"{path}:{number}: needs a sentence, a tab and a label 0 or 1")
        rows.append(((_tidy(columns[0]),), int(columns[1])))
    return _ordered(rows)


def read_trec(data_dir: Path) -> dict[str, Labelled]:
    """TREC: `COARSE:fine question`; the coarse class counts."""
    folder = data_dir / DOWNSTREAM / "TREC"
    files = {"train": "train_5500.label", "test": "TREC_10.label"}
    return {split: _trec_split(folder / file) for split, file in files.items()}


def _trec_split(path: Path) -> Labelled:
    rows = []
    for number, line in enumerate(read_lines(path, "latin-1"), start=1):
        target, _, rest = line.strip().partition(":")
        _, _, question = rest.partition(" ")
        if target not in TREC_CLASSES or not question.strip():
            raise BadInput(f"{path}:{number}: needs CLASS:kind and a question; classes: {', '.join(TREC_CLASSES)}")
        rows.append(((_tidy(question),), TREC_CLASSES.index(target)))
    return _ordered(rows)


def read_mrpc(data_dir: Path) -> dict[str, Labelled]:
    """MRPC: a header, then label, two ids and two sentences, never quoted."""
    folder = data_dir / DOWNSTREAM / "MRPC"
    return {split: _mrpc_split(folder / f"msr_paraphrase_{split}.txt") for split in ("train", "test")}


def _mrpc_split(path: Path) -> Labelled:
    rows, lines = [], read_lines(path)
    if not lines or not lines[0].startswith("Quality\t"):
        raise BadInput(f"{path}:1: no header 'Quality, #1 ID, #2 ID, #1 String, #2 String' separated by tabs")
    for number, line in enumerate(lines[1:], start=2):
        columns = line.strip().split("\t")
        if len(columns) < 5 or columns[0] not in ("0", "1"):
            raise BadInput(f"{path}:{number}: needs label 0 or 1, two ids and two sentences separated by tabs")
        rows.append(((_tidy(columns[3]), _tidy(columns[4])), int(columns[0])))
    return _ordered(rows)
