"""The searches that are compared: cosines, perhaps behind a linear layer, BM25, or both."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import Identity
from torch.nn.functional import normalize

from baselines.whitening import kernel, linear_map, moments
from eval.encode import Encode, device_here
from eval.metrics.retrieval import METRICS, per_query
from eval.retrieval.beir import drops_own_id, name_of, read_set
from eval.retrieval.hybrid import WEIGHT, best, fused
from eval.retrieval.lexical import Lexical
from models.encoder import SentenceEncoder
from models.heads import Dense, Head

# Of the linear layer: centred, mildly whitened; see results/pseudo-queries.md. arXiv 2603.19339
# takes the power from the spectrum for vectors that are cut to fewer dimensions; here all stay.
POWER = 0.25
_TOP = 10


class Search(NamedTuple):
    """How to search.

    Attributes:
        trained: with the model after training on the documents.
        power: of the whitening by a linear layer; None without the layer.
        weight: of the cosine; the rest is BM25's.
    """

    trained: bool = False
    power: float | None = None
    weight: float = 1.0

    def __str__(self) -> str:
        if not self.weight:
            return "BM25"
        if self == AS_IT_IS:
            return "model as it is"
        parts = ["trained model" if self.trained else "model"]
        if self.power is not None:
            parts.append("linear layer")
        if self.weight < 1:
            parts.append("BM25")
        return " + ".join(parts)


AS_IT_IS, BM25 = Search(), Search(weight=0.0)


def searches(trained: bool, layer: bool) -> list[Search]:
    """All of one model, cheapest first; BM25 belongs to the untrained one."""
    powers = [None, POWER] if layer else [None]
    dense = [Search(trained, power, weight) for power in powers for weight in (1.0, WEIGHT)]
    return dense if trained else [dense[0], BM25, *dense[1:]]


class SearchSet(NamedTuple):
    """Documents, queries, and for every query the grades of documents by index."""

    documents: Sequence[str]
    queries: Sequence[str]
    grades: Sequence[Mapping[int, int]]
    left_out: Sequence[int | None]  # what a query does not find, see `BeirTask.without_own_id`

    @classmethod
    def of(cls, folder: Path, split: str) -> SearchSet:
        """A set in BEIR's format; BadInput with file and line."""
        data = read_set(folder, split)
        left_out: Sequence[int | None] = [None] * len(data.queries)
        if drops_own_id(name_of(folder)):
            left_out = data.corpus.index_of([*data.queries])
        texts, queries = list(data.corpus.all_texts()), list(data.queries.values())
        return cls(texts, queries, list(data.grades.values()), left_out)

    def with_queries(self, other: SearchSet) -> SearchSet:
        """The queries of both, in the same documents."""
        return SearchSet(
            self.documents,
            [*self.queries, *other.queries],
            [*self.grades, *other.grades],
            [*self.left_out, *other.left_out],
        )


def vectors_of(
    encoder: SentenceEncoder, tokenizer: Any
) -> Callable[[Sequence[str], str], np.ndarray]:
    """A function of texts and their role (`query`, `document`) to vectors, (N, D) float32.

    They are those before a final normalisation, behind which a linear layer would belong. Each text
    is encoded once.
    """
    bare = copy.copy(encoder)
    bare._modules = dict(encoder._modules)
    if encoder.head is not None and encoder.head.normalizes:
        bare.head = Head(*encoder.head.dense_layers()) if len(encoder.head) > 1 else None
    encode = Encode(bare.to(device_here()), tokenizer, progress=True)
    known: dict[str, dict[str, np.ndarray]] = {}  # prompt -> text -> vector

    def vectors(texts: Sequence[str], role: str) -> np.ndarray:
        by_role = encode.of(role)
        kept = known.setdefault(by_role.prompt, {})
        if missing := [text for text in dict.fromkeys(texts) if text not in kept]:
            kept.update(zip(missing, by_role(missing), strict=True))
        return np.stack([kept[text] for text in texts])

    return vectors


def fitted(vectors: np.ndarray, power: float = POWER) -> Dense | None:
    """The linear layer for documents' vectors, (N, D); None for too few documents."""
    statistics = moments(vectors)
    if statistics.texts <= len(statistics.mean):
        return None
    return linear_map(kernel(statistics, power=power), statistics.mean)


@torch.no_grad()
def ndcg(
    task: SearchSet,
    vectors: Callable[[Sequence[str], str], np.ndarray],
    compared: Iterable[Search],
    layers: Mapping[float, Dense],
    language: str,
) -> dict[Search, np.ndarray]:
    """nDCG@10 of every query by search, (Q,), from 0 to 1.

    Args:
        task: documents and queries.
        vectors: the model of all these searches, see `vectors_of`.
        compared: the searches.
        layers: linear layers by power.
        language: of BM25's words.
    """
    rankings: dict[Search, list[list[str]]] = {search: [] for search in compared}
    lexical = Lexical.of(task.documents, language)
    sides = {}  # power -> unit vectors of the documents and of the queries
    for power in {search.power for search in rankings}:
        layer = Identity() if power is None else layers[power]
        documents = torch.from_numpy(vectors(task.documents, "document"))
        queries = torch.from_numpy(vectors(task.queries, "query"))
        sides[power] = normalize(layer(documents)), normalize(layer(queries))
    for number, query in enumerate(task.queries):
        words = lexical.scores(query)
        cosines = {}
        for power, (documents, queries) in sides.items():
            cosines[power] = (documents @ queries[number]).numpy()
        for search, ranking in rankings.items():
            scores = words
            if search.weight == 1:
                scores = cosines[search.power]
            elif search.weight:
                scores = fused(cosines[search.power], words, search.weight)
            found = best(scores, _TOP + 1).tolist()
            if not search.weight:
                found = [index for index in found if words[index] > 0]
            others = [str(index) for index in found if index != task.left_out[number]]
            ranking.append(others[:_TOP])
    grades = [{str(index): grade for index, grade in graded.items()} for graded in task.grades]
    values = {}
    for search, ranking in rankings.items():
        values[search] = per_query(ranking, grades)[METRICS[0]] / 100
    return values
