"""Graded pairs of the toy corpus: two wordings of frames with a known number of different slots."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np

from data.toy_grammar import (
    OPTIONAL,
    WEIGHTS,
    Frame,
    Wording,
    change,
    draw_frame,
    draw_wording,
    gold,
    say,
    split_of,
)
from data.toy_lexicon import TEMPLATES


class Pair(NamedTuple):
    """Two sentences and their gold similarity, 0 to 5."""

    sentence1: str
    sentence2: str
    score: float


class Kind(NamedTuple):
    """A kind of pair: how many slots differ, out of which, and how the second sentence is worded.

    `far` and `close` are the shares of second wordings that avoid, or repeat, the first's words.
    """

    name: str
    number: int
    slots: tuple[str, ...]
    far: float
    close: float


# Drawn in turn. Close meanings often avoid each other's words and far ones sometimes share their wording, so that
# counting common words is a poor guide. Almost half of the pairs have nothing in common, as two sentences drawn at
# random have not.
UNRELATED = Kind("another topic", 0, (), 0.0, 0.2)
KINDS = (
    Kind("same", 0, (), 0.5, 0.0),
    Kind("one minor slot", 1, OPTIONAL, 0.5, 0.0),
    Kind("object or place", 1, ("object", "place"), 0.5, 0.0),
    Kind("agent and object", 2, ("agent", "object"), 0.0, 0.2),
    Kind("same topic only", 8, tuple(WEIGHTS), 0.0, 0.2),
    *(UNRELATED,) * 4,
)


def word_overlap(pairs: Sequence[Pair]) -> np.ndarray:
    """The baseline that knows no meanings: for each pair, the cosine of the binary bags of words."""
    bags = [(set(pair.sentence1.split()), set(pair.sentence2.split())) for pair in pairs]
    return np.array([len(a & b) / np.sqrt(len(a) * len(b)) for a, b in bags])


def reword(first: Wording, kind: Kind, rng: Random) -> Wording:
    """The wording of a pair's second sentence: the first's, one that avoids it, or an independent one."""
    style = rng.random()
    if style < kind.close:
        return first
    fresh = draw_wording(rng)
    if style > 1 - kind.far:
        other = rng.choice([each for each in TEMPLATES if each != first.template])
        fresh = fresh._replace(template=other, picks=tuple(pick + 1 for pick in first.picks))
    return fresh


def _second_frame(first: Frame, kind: Kind, rng: Random) -> Frame | None:
    """Draw the other frame of a pair; None where it is not of this kind (no minor slot to change, say)."""
    if kind.name == "another topic":
        second = draw_frame(rng)
        return second if second.topic != first.topic else None
    second = change(first, kind.slots, kind.number, rng)
    return second if kind.number == 0 or second != first else None


def draw_pair(rng: Random, kind: Kind, part: str, seed: int) -> Pair | None:
    """Draw a pair of the given kind; None where a frame of it is not of this part, or the strings are equal."""
    first = draw_frame(rng)
    if split_of(first, seed) != part:
        return None
    for _ in range(20):
        second = _second_frame(first, kind, rng)
        if second and split_of(second, seed) == part:
            wording = draw_wording(rng)
            pair = Pair(say(first, wording), say(second, reword(wording, kind, rng)), gold(first, second))
            return pair if pair.sentence1 != pair.sentence2 else None
    return None
