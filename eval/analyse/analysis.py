"""The interface of an analysis, the data it reads, and the labels of models in tables and pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import BadInput
from eval.encode import Encoder
from eval.sts import Pairs, StsTask, merged
from eval.text_files import read_lines, tidy

QUERIES = 5  # without --neighbours: the first sentences


@dataclass(frozen=True)
class Material:
    """The data on which every model is measured.

    Attributes:
        name: of the pairs, for titles: `STS-B test`.
        pairs: scored pairs; None where no chosen analysis needs them and sentences were given.
        source: of the sentences, for titles.
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
        return distinct(self.pairs.left + self.pairs.right)

    def read_by(self, analysis: Analysis) -> str:
        """The data of an analysis, for titles."""
        return self.name if analysis.needs_pairs else self.source


@dataclass(frozen=True)
class Subject:
    """One model: its sentence vectors and, where an analysis reads them, `eval.analyse.tokens.TokenAverages`."""

    encode: Encoder
    tokens: Any = None


@dataclass(frozen=True)
class Analysis:
    """One analysis.

    Attributes:
        about: one line of help.
        measure: model and material -> numbers, lists and dicts that JSON can hold.
        headlines: key of the result -> (name in the table, format).
        needs_pairs: whether scored pairs are needed; otherwise sentences are enough.
    """

    about: str
    measure: Callable[[Subject, Material], dict[str, Any]]
    headlines: dict[str, tuple[str, str]]
    needs_pairs: bool = False

    def lines(self, results: Sequence[dict[str, Any] | None]) -> Iterator[tuple[str, list[str]]]:
        """The title of each headline, and a cell for each result."""
        for key, (title, form) in self.headlines.items():
            values = [found and found[key] for found in results]
            yield title, ["none" if value is None else format(value, form) for value in values]


def distinct(sentences: Sequence[str]) -> list[str]:
    """Every sentence once, in the order of first appearance."""
    return list(dict.fromkeys(sentences))


class CachedEncoder:
    """An encoder that caches its vectors, so that several analyses encode a sentence once."""

    def __init__(self, encode: Encoder) -> None:
        self._encode = encode
        self._vectors: dict[str, np.ndarray] = {}

    def __call__(self, sentences: list[str]) -> np.ndarray:
        new = [sentence for sentence in distinct(sentences) if sentence not in self._vectors]
        if new:
            self._vectors.update(zip(new, self._encode(new), strict=True))
        return np.stack([self._vectors[sentence] for sentence in sentences])


def read_sentences(path: str, least: int) -> list[str]:
    """The distinct sentences of a text file, one a line, white space tidied, blank lines left out.

    Raises:
        BadInput: the file cannot be read, or holds fewer than `least` distinct sentences.
    """
    lines = (tidy(line) for line in read_lines(Path(path)))
    found = distinct([line for line in lines if line])
    if len(found) < least:
        raise BadInput(f"{path}: {len(found)} distinct sentences, one a line; at least {least} needed")
    return found


def gather(
    analyses: Iterable[Analysis], task: StsTask, data_dir: str, sentences: str | None, queries: str | None, above: float
) -> Material:
    """Read and check all data before a model is loaded; the pairs only where they are needed.

    `sentences` and `queries` are text files; None takes the sentences of the pairs, and the first of the sentences.

    Raises:
        BadInput: a missing, malformed or empty file.
    """
    pairs = None
    if sentences is None or any(analysis.needs_pairs for analysis in analyses):
        pairs = merged(task.load(data_dir))
    name = f"{task.name} {task.split}"
    chosen = distinct(pairs.left + pairs.right) if sentences is None else read_sentences(sentences, 2)
    if len(chosen) < 2:
        raise BadInput(f"{name}: {len(chosen)} distinct sentences; at least 2 needed")
    asked = chosen[:QUERIES] if queries is None else read_sentences(queries, 1)
    return Material(name, pairs, name if sentences is None else Path(sentences).name, chosen, asked, above)
