"""What an analysis is: it measures one model on one material and returns numbers ready for JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from common.errors import BadInput
from eval.sts.files import Pairs
from eval.task import Encoder


@dataclass(frozen=True)
class Material:
    """The data every model is shown.

    Attributes:
        name: what the pairs are, for titles: `STS-B test`.
        pairs: scored pairs; None where only sentences were given and no chosen analysis needs more.
        source: what the sentences are, for titles.
        sentences: distinct sentences, at least two.
        queries: distinct sentences whose nearest neighbours among `sentences` are wanted.
        above: pairs with a gold score above it are positives.
    """

    name: str
    pairs: Pairs | None
    source: str
    sentences: list[str]
    queries: list[str]
    above: float

    @property
    def paired(self) -> list[str]:
        """The distinct sentences of the pairs."""
        return distinct(self.pairs.left + self.pairs.right)


class Tokens(Protocol):
    """A model seen token by token; `eval.analyse.tokens.TokenAverages` is one."""

    def ids(self, sentences: list[str]) -> list[list[int]]:
        """The token ids of every sentence, special ones included, cut at the model's length."""

    def names(self, ids: Sequence[int]) -> list[str]:
        """How the tokens are written."""

    def averages(self, sentences: list[str], frequent: Sequence[int], removed: Sequence[int]) -> np.ndarray:
        """Per number k in `removed`, the average vector without the first k tokens of `frequent`, (N, K, H)."""


@dataclass(frozen=True)
class Subject:
    """One model: its sentence vectors and its token vectors; None where no chosen analysis reads tokens."""

    encode: Encoder
    tokens: Tokens | None = None


@dataclass(frozen=True)
class Analysis:
    """One analysis.

    Attributes:
        about: one line of help.
        measure: model and material -> numbers, lists and dicts that JSON can hold.
        headlines: key of the result -> (what the table calls it, format).
        needs_pairs: whether scored pairs are needed; otherwise sentences are enough.
    """

    about: str
    measure: Callable[[Subject, Material], dict[str, Any]]
    headlines: dict[str, tuple[str, str]]
    needs_pairs: bool = False


def distinct(sentences: Sequence[str]) -> list[str]:
    """Every sentence once, in the order of first appearance."""
    return list(dict.fromkeys(sentences))


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length one in float64, (N, D) -> (N, D); a zero row stays zero, so that its cosines are 0."""
    vectors = vectors.astype(np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


def named(names: Sequence[str], known: dict[str, Analysis]) -> dict[str, Analysis]:
    """The analyses of these names in the order of `known`, all for no name; BadInput for an unknown one."""
    for name in names:
        if name not in known:
            raise BadInput(f"analysis '{name}' is unknown; choose from: {', '.join(known)}")
    return {name: analysis for name, analysis in known.items() if not names or name in names}


class Remembered:
    """An encoder that encodes a sentence once, however many analyses ask for it."""

    def __init__(self, encode: Encoder) -> None:
        self._encode = encode
        self._vectors: dict[str, np.ndarray] = {}

    def __call__(self, sentences: list[str]) -> np.ndarray:
        """The vectors, (N, D)."""
        new = [sentence for sentence in distinct(sentences) if sentence not in self._vectors]
        if new:
            self._vectors.update(zip(new, self._encode(new), strict=True))
        return np.stack([self._vectors[sentence] for sentence in sentences])
