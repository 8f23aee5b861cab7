"""The interface of an analysis and the data it reads."""

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


@dataclass(frozen=True)
class Material:
    """The data on which every model is measured.

    Attributes:
        name: of the pairs, for titles, such as `STS-B test`.
        pairs: scored pairs; None if no chosen analysis needs them and sentences were given.
        source: of the sentences, for titles.
        sentences: distinct sentences, at least two.
        above: pairs with a gold score above this are positives.
    """

    name: str
    pairs: Pairs | None
    source: str
    sentences: list[str]
    above: float

    @property
    def paired(self) -> list[str]:
        return distinct(self.pairs.left + self.pairs.right)

    def read_by(self, analysis: Analysis) -> str:
        """The data of an analysis, for titles."""
        return self.name if analysis.needs_pairs else self.source


@dataclass(frozen=True)
class Analysis:
    """One analysis.

    Attributes:
        about: one line of help.
        measure: encoder and material -> JSON-serialisable result.
        headlines: key of the result -> (name in the table, format).
        needs_pairs: needs scored pairs; otherwise sentences are enough.
    """

    about: str
    measure: Callable[[Encoder, Material], dict[str, Any]]
    headlines: dict[str, tuple[str, str]]
    needs_pairs: bool = False

    def lines(self, results: Sequence[dict[str, Any] | None]) -> Iterator[tuple[str, list[str]]]:
        """The title of each headline, and one cell per result."""
        for key, (title, form) in self.headlines.items():
            values = [result and result[key] for result in results]
            yield title, ["none" if value is None else format(value, form) for value in values]


def distinct(sentences: Sequence[str]) -> list[str]:
    """Every sentence once, in the order of first appearance."""
    return list(dict.fromkeys(sentences))


class CachedEncoder:
    """An encoder that caches its vectors, so that each sentence is encoded once for all analyses."""

    def __init__(self, encode: Encoder) -> None:
        self._encode = encode
        self._vectors: dict[str, np.ndarray] = {}

    def __call__(self, sentences: list[str]) -> np.ndarray:
        new = [sentence for sentence in distinct(sentences) if sentence not in self._vectors]
        if new:
            self._vectors.update(zip(new, self._encode(new), strict=True))
        return np.stack([self._vectors[sentence] for sentence in sentences])


def read_sentences(path: str, least: int) -> list[str]:
    """The distinct sentences of a text file, one per line; white space is normalised, blank lines are skipped.

    Raises:
        BadInput: the file cannot be read, is JSON or a table, or contains fewer than `least` distinct sentences.
    """
    raw = read_lines(Path(path))
    lines = [tidy(line) for line in raw]
    if lines and lines[0].startswith("{") and lines[0].endswith("}"):
        raise BadInput(f"{path}: JSON, not one sentence per line; convert it to lines of text")
    if sum("\t" in line.strip() for line in raw) > len(raw) / 2:
        raise BadInput(f"{path}: a table (tabs), not one sentence per line; convert it to lines of text")
    sentences = distinct([line for line in lines if line])
    if len(sentences) < least:
        raise BadInput(f"{path}: {len(sentences)} distinct sentences; give at least {least}, one per line")
    return sentences


def gather(analyses: Iterable[Analysis], task: StsTask, data_dir: str, sentences: str | None, above: float) -> Material:
    """Read and check all data before a model is loaded; pairs are read only if needed.

    `sentences` is a text file; by default the sentences are those of the pairs.

    Raises:
        BadInput: a missing, malformed or empty file.
    """
    pairs = None
    if sentences is None or any(analysis.needs_pairs for analysis in analyses):
        pairs = merged(task.load(data_dir))
    name = f"{task.name} {task.split}"
    chosen = distinct(pairs.left + pairs.right) if sentences is None else read_sentences(sentences, 2)
    if len(chosen) < 2:
        raise BadInput(f"{name}: {len(chosen)} distinct sentences; give at least 2")
    return Material(name, pairs, name if sentences is None else Path(sentences).name, chosen, above)
