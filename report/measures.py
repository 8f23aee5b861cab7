"""Run the models for the report: analyses of `eval/analyse`, and nearest neighbours."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Any

import numpy as np

from common.errors import BadInput
from eval.analyse.geometry import measure as analyse
from eval.analyse.geometry import read_sentences
from eval.encode import Encoder, unit
from eval.sts import Pairs, StsTask, merged
from report import LIMIT

QUERIES, NEAREST = 20, 5  # sentences whose neighbours are shown, and how many


@dataclass(frozen=True)
class Texts:
    """The texts to encode.

    Attributes:
        pairs: scored, for the analyses, if there are any.
        name: of the pairs.
        analysed: distinct sentences for the spectrum.
        origin: their origin, for the reader.
        searched: distinct sentences to search, at most `LIMIT`.
        source: their origin, for the reader.
        count: their number before the cut.
    """

    pairs: Pairs | None
    name: str
    analysed: list[str]
    origin: str
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

    def by_run(self, runs: int) -> list[dict[str, dict[str, Any]]]:
        """{analysis: result} of every run."""
        return [{name: results[run] for name, results in self.results.items() if run in results} for run in range(runs)]


def read_texts(tasks: list[StsTask], data_dir: str, sentences: str | None) -> Texts:
    """Read the pairs (the first task for the analyses, all for the search) or a file of sentences.

    Raises:
        BadInput: a file is damaged, or `sentences` cannot be read. A missing published set is not an error.
    """
    loaded = {f"{task.name} {task.split}": pairs for task in tasks if (pairs := _pairs(task, data_dir)) is not None}
    title = f"{tasks[0].name} {tasks[0].split}"
    pairs = loaded.get(title)
    if sentences is None:
        every = list(dict.fromkeys(text for some in loaded.values() for text in (*some.left, *some.right)))
        source = " and ".join(loaded)
    else:
        every, source = read_sentences(sentences), PureWindowsPath(sentences).name
    analysed, origin = every[:LIMIT], source
    if sentences is None and pairs is not None:  # the spectrum uses the first pairs, as in eval.analyse
        analysed, origin = list(dict.fromkeys(pairs.left + pairs.right)), title
    return Texts(pairs, title, analysed, origin, every[:LIMIT], source, len(every))


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
    if len(texts.searched) < 2:
        return Measured({}, {})
    paired = [*texts.pairs.left, *texts.pairs.right] if texts.pairs else []
    every = list(dict.fromkeys([*paired, *texts.analysed, *texts.searched]))
    results: dict[str, dict[int, dict[str, Any]]] = {}
    searched = {}
    for number, encode in encoders.items():
        vectors = dict(zip(every, encode(every), strict=True))
        for name, result in analyse(vectors, texts.pairs, texts.analysed).items():
            results.setdefault(name, {})[number] = result
        searched[number] = np.stack([vectors[text] for text in texts.searched])
    return Measured(dict(sorted(results.items())), nearest(searched, texts.searched))


def nearest(
    vectors_by_run: Mapping[int, np.ndarray], sentences: list[str]
) -> dict[str, dict[int, list[tuple[str, float]]]]:
    """The `NEAREST` other sentences by cosine for `QUERIES` evenly spaced ones; ties keep the sentences' order."""
    queries = sorted({number * len(sentences) // QUERIES for number in range(QUERIES)})
    lists: dict[str, dict[int, list[tuple[str, float]]]] = {sentences[query]: {} for query in queries if vectors_by_run}
    for run, given in vectors_by_run.items():
        vectors = unit(given)
        for query in queries:
            cosines = vectors @ vectors[query]
            order = [i for i in np.argsort(-cosines, kind="stable")[: NEAREST + 1] if i != query][:NEAREST]
            lists[sentences[query]][run] = [(sentences[i], float(cosines[i])) for i in order]
    return lists
