"""Readers of sentence pairs with a gold score: the STS years, and tab-separated columns (STS-B, SICK, own files).

Pairs without a gold score are dropped; sentences are split at white space and joined again, as SentEval does.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from common.errors import BadInput
from eval.lines import read_lines

# `float` also takes 0_1, infinity and the digits of every script, which are slips here.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs and their gold scores, row by row."""

    left: list[str]
    right: list[str]
    gold: list[float]

    def __add__(self, other: Pairs) -> Pairs:
        return Pairs(self.left + other.left, self.right + other.right, self.gold + other.gold)


def _tidy(sentence: str) -> str:
    return " ".join(sentence.split())


def _score(text: str, where: str, highest: float = 5.0) -> float:
    value = float(text) if _NUMBER.fullmatch(text.strip()) else math.nan
    if not 0.0 <= value <= highest:
        raise BadInput(f"{where}: '{text}' is not a score from 0 to {highest:g}")
    return value


def _sentence(text: str, where: str) -> str:
    if "\0" in text:
        raise BadInput(f"{where} holds a NUL byte; the file is not plain text")
    if not text.strip():
        raise BadInput(f"{where} is empty; a sentence is needed")
    return _tidy(text)


def _named(path: Path, header: list[str], names: list[str]) -> list[int]:
    """The places of columns in a header that has each of them once."""
    for name in names:
        if header.count(name) != 1:
            said = f"column '{name}' is there twice" if name in header else f"no column '{name}'"
            raise BadInput(f"{path}:1: {said} in the header; needed, with tabs between: {', '.join(names)}")
    return [header.index(name) for name in names]


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
    lines, wanted, first = read_lines(path), [score, left, right], 1
    if isinstance(score, str):
        wanted, lines, first = _named(path, lines[0].split("\t") if lines else [], wanted), lines[1:], 2
    pairs = Pairs([], [], [])
    for number, line in enumerate(lines, start=first):
        columns = line.split("\t")
        if len(columns) <= max(wanted):
            raise BadInput(f"{path}:{number}: {len(columns)} columns; at least {max(wanted) + 1} are needed")
        pairs.gold.append(_score(columns[wanted[0]], f"{path}:{number}"))
        for side, column in ((pairs.left, wanted[1]), (pairs.right, wanted[2])):
            side.append(_sentence(columns[column], f"{path}:{number}: column {column + 1}"))
    if len(pairs.gold) < 2:
        raise BadInput(f"{path}: {len(pairs.gold)} pairs; a correlation needs at least two")
    if len(set(pairs.gold)) == 1:
        raise BadInput(f"{path}: every score is {pairs.gold[0]:g}; a correlation needs different ones")
    return pairs
