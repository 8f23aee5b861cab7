"""Nearest neighbours of given sentences: what a model thinks is similar, for a person to read."""

from __future__ import annotations

import numpy as np

from eval.analyse.analysis import Analysis, Material, Subject, unit

TOP = 5


def nearest(
    queries: list[str], query_vectors: np.ndarray, sentences: list[str], vectors: np.ndarray, top: int = TOP
) -> list[list[tuple[int, float]]]:
    """Per query, the numbers of its nearest sentences and their cosines, the nearest first.

    A sentence is not its own neighbour; of equally near ones the earlier stands first; fewer than `top` where there
    are no more.

    Args:
        queries: Q sentences.
        query_vectors: (Q, D).
        sentences: N distinct sentences.
        vectors: (N, D).
        top: how many neighbours.
    """
    cosines = unit(query_vectors) @ unit(vectors).T
    found = []
    for query, row in zip(queries, cosines, strict=True):
        order = np.argsort(-row, kind="stable")[: top + 1]
        others = [int(i) for i in order if sentences[i] != query]
        found.append([(i, float(row[i])) for i in others[:top]])
    return found


def measure(subject: Subject, material: Material) -> dict:
    """Every query with its neighbours, and the mean cosine of the nearest one."""
    queries, sentences = material.queries, material.sentences
    found = nearest(queries, subject.encode(queries), sentences, subject.encode(sentences))
    return {
        "mean_cosine_of_nearest": float(np.mean([neighbours[0][1] for neighbours in found])),
        "sentences": len(sentences),
        "queries": [
            {"query": query, "neighbours": [{"sentence": sentences[i], "cosine": cosine} for i, cosine in neighbours]}
            for query, neighbours in zip(queries, found, strict=True)
        ],
    }


ANALYSIS = Analysis(
    about=f"the {TOP} nearest sentences of each query, with their cosines",
    measure=measure,
    headlines={"mean_cosine_of_nearest": ("mean cosine of the nearest neighbour", ".3f")},
)
