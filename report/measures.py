"""Run the models for the report: analyses of `eval/analyse`, and vectors for the neighbour search."""

import base64
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Any

import numpy as np

from common.errors import BadInput
from eval.analyse.analysis import Analysis, CachedEncoder, Material, distinct, read_sentences
from eval.analyse.geometry import ABOVE, ANISOTROPY
from eval.analyse.geometry import ALIGNMENT_UNIFORMITY as ALIGNMENT
from eval.analyse.geometry import COSINE_BY_GOLD as GOLD
from eval.encode import Encoder, unit
from eval.sts import Pairs, StsTask, merged
from report import LIMIT

logger = logging.getLogger(__name__)
ANALYSES = {"alignment_uniformity": ALIGNMENT, "anisotropy": ANISOTROPY, "cosine_by_gold": GOLD}
BUDGET = 8_000_000  # base64 characters for the vectors of all runs, which keeps the page below 10 MB


@dataclass(frozen=True)
class Texts:
    """The texts to encode.

    Attributes:
        material: for the analyses; None for fewer than two sentences.
        searched: distinct sentences for the search, at most `LIMIT`.
        source: their origin, for the reader.
        count: their number before the cut.
    """

    material: Material | None
    searched: list[str]
    source: str
    count: int


@dataclass(frozen=True)
class Rounded:
    """One run's vectors, rounded.

    Attributes:
        label: the run's name.
        number: the run's number on the page, which determines its colour.
        rows: each vector divided by its largest component, times 32767, rounded, (N, D) int16. The scale is dropped,
            because it does not affect cosines.
        error: the largest rounding error of a cosine between two of the sentences.
    """

    label: str
    number: int
    rows: np.ndarray
    error: float

    def content(self) -> dict[str, Any]:
        text = base64.b64encode(self.rows.tobytes()).decode("ascii")
        return {"label": self.label, "run": self.number, "dimensions": self.rows.shape[1], "vectors": text}


@dataclass(frozen=True)
class Measured:
    """The results: analysis -> {run number: its result}, and the vectors of each run with an encoder.

    Impossible analyses are missing; `searched` is the prefix of `Texts.searched` whose vectors fit.
    """

    results: dict[str, dict[int, dict[str, Any]]]
    searched: list[str]
    packed: list[Rounded]


def read_texts(tasks: list[StsTask], data_dir: str, sentences: str | None) -> Texts:
    """Read the pairs (the first task for the analyses, all for the search) or a file of sentences.

    Raises:
        BadInput: a file is damaged, or `sentences` cannot be read. A missing published set is not an error.
    """
    loaded = {f"{task.name} {task.split}": pairs for task in tasks if (pairs := _pairs(task, data_dir)) is not None}
    if not loaded and sentences is None:
        missing = "%s has no STS-B: the page will lack geometry and search; give --data_dir or --sentences"
        logger.warning(missing, data_dir)
    title = f"{tasks[0].name} {tasks[0].split}"
    pairs = loaded.get(title)
    if sentences is None:
        every = distinct([text for some in loaded.values() for text in (*some.left, *some.right)])
        source = " and ".join(loaded)
    else:
        every, source = read_sentences(sentences, 2), PureWindowsPath(sentences).name
    analysed, origin = every[:LIMIT], source
    if sentences is None and pairs is not None:  # the spectrum uses the first pairs, as in eval.analyse
        analysed, origin = distinct(pairs.left + pairs.right), title
    material = Material(title, pairs, origin, analysed, ABOVE) if len(every) > 1 else None
    return Texts(material, every[:LIMIT], source, len(every))


def _pairs(task: StsTask, data_dir: str) -> Pairs | None:
    try:
        return merged(task.load(data_dir))
    except BadInput as error:
        # A published set may not be downloaded; a file named by the user must exist.
        if task.pairs is not None and isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def measure(encoders: Mapping[int, tuple[str, Encoder]], texts: Texts) -> Measured:
    """Run every analysis that the texts allow, and encode the sentences to search.

    `encoders` is {run number: (label, encoder)}.
    """
    results: dict[str, dict[int, dict[str, Any]]] = {}
    cached = {number: CachedEncoder(encode) for number, (_, encode) in encoders.items()}
    for name, analysis in ANALYSES.items():
        if texts.material and _possible(analysis, texts.material):
            for number, encode in cached.items():
                results.setdefault(name, {})[number] = analysis.measure(encode, texts.material)
    if len(texts.searched) < 2 or not cached:
        return Measured(results, [], [])
    vectors = {number: encode(texts.searched) for number, encode in cached.items()}
    room = BUDGET * 3 // 4 // 2  # components: base64 writes 3 bytes as 4 characters
    count = min(len(texts.searched), room // max(1, sum(rows.shape[1] for rows in vectors.values())))
    packed = [pack(encoders[number][0], number, rows[:count]) for number, rows in vectors.items()]
    return Measured(results, texts.searched[:count], packed)


def _possible(analysis: Analysis, material: Material) -> bool:
    """Whether the material has what the analysis needs: scored pairs, and a positive one for the alignment."""
    pairs = material.pairs
    if not analysis.needs_pairs:
        return True
    return pairs is not None and (analysis is not ALIGNMENT or max(pairs.gold) > material.above)


def pack(label: str, number: int, vectors: np.ndarray) -> Rounded:
    """Round vectors, (N, D); a zero vector stays zero, and its cosines are 0."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    scaled = np.divide(32767.0 * vectors, largest, out=np.zeros(vectors.shape), where=largest > 0)
    rows = np.rint(scaled).astype("<i2")  # little-endian, as browsers read
    exact, rounded, worst = unit(vectors), unit(rows), 0.0
    for start in range(0, len(rows), 512):  # in blocks of rows, to save memory
        part = slice(start, start + 512)
        worst = max(worst, float(np.abs(exact[part] @ exact.T - rounded[part] @ rounded.T).max()))
    return Rounded(label, number, rows, worst)
