"""Readers of sentence pairs with a gold score, and the score of an encoder on them.

Protocol: SimCSE's modified SentEval (arXiv 2104.08821, appendix B): cosine, no trained regressor; for STS12 to
STS16 the subsets of a year are concatenated and give one Spearman correlation ("all"); pairs without a gold
score are dropped; sentences are split at white space and joined again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from errors import BadInput

Encoder = Callable[[list[str]], np.ndarray]


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs and their gold scores, row by row."""

    left: list[str]
    right: list[str]
    gold: list[float]

    def __add__(self, other: Pairs) -> Pairs:
        return Pairs(self.left + other.left, self.right + other.right, self.gold + other.gold)


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file; only a line feed ends a line, so that lines of two files stay aligned."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror}); `python -m data.prepare sts` fetches it") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise BadInput(f"{path}:{line}: not UTF-8 (byte {error.start})") from error
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _tidy(sentence: str) -> str:
    return " ".join(sentence.split())


def _score(text: str, where: str, highest: float = 5.0) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= highest:
        raise BadInput(f"{where}: '{text}' is not a score from 0 to {highest:g}")
    return value


def read_sts_year(folder: Path, subset: str) -> Pairs:
    """One subset of STS12 to STS16: `STS.input.X.txt` beside `STS.gs.X.txt`; unscored pairs are left out."""
    texts, golds = folder / f"STS.input.{subset}.txt", folder / f"STS.gs.{subset}.txt"
    rows, scores = read_lines(texts), read_lines(golds)
    if len(rows) != len(scores):
        raise BadInput(f"{golds}: {len(scores)} scores for the {len(rows)} pairs of {texts.name}")
    pairs = Pairs([], [], [])
    for number, (row, gold) in enumerate(zip(rows, scores, strict=True), start=1):
        if gold.strip() == "":
            continue
        columns = row.split("\t")
        if len(columns) < 2:
            raise BadInput(f"{texts}:{number}: one column; two sentences separated by a tab are needed")
        pairs.left.append(_tidy(columns[0]))
        pairs.right.append(_tidy(columns[1]))
        pairs.gold.append(_score(gold.strip(), f"{golds}:{number}"))
    return pairs


def read_columns(path: Path, score: int | str, left: int | str, right: int | str) -> Pairs:
    """Tab-separated columns, never quoted; columns by number, or by name from a header line."""
    lines = read_lines(path)
    wanted = [score, left, right]
    first = 1
    if isinstance(score, str):
        header = lines[0].split("\t") if lines else []
        missing = [name for name in wanted if name not in header]
        if missing:
            raise BadInput(f"{path}:1: no column '{missing[0]}' in the header; needed: {', '.join(map(str, wanted))}")
        wanted, lines, first = [header.index(name) for name in wanted], lines[1:], 2
    pairs = Pairs([], [], [])
    for number, line in enumerate(lines, start=first):
        columns = line.split("\t")
        if len(columns) <= max(wanted):
            raise BadInput(f"{path}:{number}: {len(columns)} columns; at least {max(wanted) + 1} are needed")
        pairs.gold.append(_score(columns[wanted[0]], f"{path}:{number}"))
        pairs.left.append(_tidy(columns[wanted[1]]))
        pairs.right.append(_tidy(columns[wanted[2]]))
    if len(pairs.gold) < 2:
        raise BadInput(f"{path}: {len(pairs.gold)} pairs; a correlation needs at least two")
    return pairs


def cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Cosine of each row pair, (N, D) and (N, D) -> (N,); 0 where a vector is zero."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.divide((left * right).sum(1), norms, out=np.zeros(len(left)), where=norms > 0)


def spearman(encode: Encoder, pairs: Pairs) -> float:
    """Spearman's correlation x 100 between cosine and gold score; 0 where all cosines are equal."""
    vectors = encode(pairs.left + pairs.right)
    similarity = cosines(vectors[: len(pairs.left)], vectors[len(pairs.left) :])
    if np.ptp(similarity) == 0 or np.ptp(pairs.gold) == 0:
        return 0.0  # a constant has no correlation: a collapsed model knows nothing of the order
    return 100 * float(spearmanr(similarity, pairs.gold).statistic)
