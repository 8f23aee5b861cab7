"""Run the models for the report: analyses of `eval/analyse`, and nearest neighbours."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Any

import numpy as np

from common.errors import BadInput
from eval.analyse.geometry import ABOVE, ANISOTROPY, Analysis, CachedEncoder, Material, distinct, read_sentences
from eval.analyse.geometry import ALIGNMENT_UNIFORMITY as ALIGNMENT
from eval.analyse.geometry import COSINE_BY_GOLD as GOLD
from eval.encode import Encoder, unit
from eval.sts import Pairs, StsTask, merged
from report import LIMIT

ANALYSES = {"alignment_uniformity": ALIGNMENT, "anisotropy": ANISOTROPY, "cosine_by_gold": GOLD}
QUERIES, NEAREST = 20, 5  # sentences whose neighbours are shown, and how many


@dataclass(frozen=True)
class Texts:
    """The texts to encode.

    Attributes:
        material: for the analyses; None for fewer than two sentences.
        searched: distinct sentences to search, at most `LIMIT`.
        source: their origin, for the reader.
        count: their number before the cut.
    """

    material: Material | None
    searched: list[str]
    source: str
    count: int


@dataclass(frozen=True)
class Measured:
    """The results.

    Attributes:
        results: analysis -> {run number: its result}; impossible analyses are missing.
        neighbours: for some sentences, {run number: the nearest others as (sentence, cosine)}.
    """

    results: dict[str, dict[int, dict[str, Any]]]
    neighbours: dict[str, dict[int, list[tuple[str, float]]]]


def read_texts(tasks: list[StsTask], data_dir: str, sentences: str | None) -> Texts:
    """Read the pairs (the first task for the analyses, all for the search) or a file of sentences.

    Raises:
        BadInput: a file is damaged, or `sentences` cannot be read. A missing published set is not an error.
    """
    loaded = {f"{task.name} {task.split}": pairs for task in tasks if (pairs := _pairs(task, data_dir)) is not None}
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


def measure(encoders: Mapping[int, Encoder], texts: Texts) -> Measured:
    """Run every analysis that the texts allow, and search the neighbours; `encoders` is {run number: encoder}."""
    results: dict[str, dict[int, dict[str, Any]]] = {}
    cached = {number: CachedEncoder(encode) for number, encode in encoders.items()}
    for name, analysis in ANALYSES.items():
        if texts.material and _possible(analysis, texts.material):
            for number, encode in cached.items():
                results.setdefault(name, {})[number] = analysis.measure(encode, texts.material)
    return Measured(results, nearest(cached, texts.searched) if len(texts.searched) > 1 else {})


def nearest(encoders: Mapping[int, Encoder], sentences: list[str]) -> dict[str, dict[int, list[tuple[str, float]]]]:
    """The `NEAREST` other sentences by cosine for `QUERIES` evenly spaced ones; ties keep the sentences' order."""
    queries = sorted({number * len(sentences) // QUERIES for number in range(QUERIES)})
    lists: dict[str, dict[int, list[tuple[str, float]]]] = {sentences[query]: {} for query in queries if encoders}
    for run, encode in encoders.items():
        vectors = unit(encode(sentences))
        for query in queries:
            cosines = vectors @ vectors[query]
            order = [i for i in np.argsort(-cosines, kind="stable")[: NEAREST + 1] if i != query][:NEAREST]
            lists[sentences[query]][run] = [(sentences[i], float(cosines[i])) for i in order]
    return lists


def _possible(analysis: Analysis, material: Material) -> bool:
    """Whether the material has what the analysis needs: scored pairs, and a positive one for the alignment."""
    pairs = material.pairs
    if not analysis.needs_pairs:
        return True
    return pairs is not None and (analysis is not ALIGNMENT or max(pairs.gold) > material.above)
