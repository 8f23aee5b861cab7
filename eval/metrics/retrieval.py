"""nDCG@10, recall, average precision and reciprocal rank, all x 100, by trec_eval (pytrec_eval)."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytrec_eval

_MEASURES = {
    "ndcg@10": "ndcg_cut_10",
    "recall@100": "recall_100",
    "map": "map",
    "mrr": "recip_rank",
}  # to trec_eval's
METRICS = tuple(_MEASURES)


def per_query(
    rankings: Iterable[Sequence[str]], judgements: Iterable[Mapping[str, int]]
) -> dict[str, np.ndarray]:
    """Every metric for every query, x 100.

    The gain of a document is its grade, or 0 if unjudged or graded below 1; the discount of rank r
    is log2(r + 1). Recall, average precision and reciprocal rank treat any grade from 1 as
    relevant. `map` and `mrr` cover the whole given ranking.

    Args:
        rankings: for each query, ids of retrieved documents, best first, each id once.
        judgements: for each query, document id -> grade; at least one is positive.

    Returns:
        Metric name -> (Q,) float64, from 0 to 100.
    """
    measures, results = set(_MEASURES.values()), []
    for ranking, grades in zip(rankings, judgements, strict=True):
        # One query at a time, to bound memory. Descending scores keep the given order: trec_eval
        # sorts by score and breaks ties by id.
        run = {document: float(len(ranking) - rank) for rank, document in enumerate(ranking)}
        judged = {document: max(0, int(grade)) for document, grade in grades.items()}
        results.append(
            pytrec_eval.RelevanceEvaluator({"q": judged}, measures).evaluate({"q": run})["q"]
        )
    return {
        name: 100 * np.array([result[key] for result in results], float)
        for name, key in _MEASURES.items()
    }
