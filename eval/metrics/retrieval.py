"""nDCG@10, recall, average precision and reciprocal rank, all x 100, by trec_eval (pytrec_eval)."""

from collections.abc import Iterable, Mapping, Sequence

import datasets
import evaluate
import numpy as np
import pytrec_eval

_MEASURES = {"ndcg@10": "ndcg_cut_10", "recall@100": "recall_100", "map": "map", "mrr": "recip_rank"}  # to trec_eval's
METRICS = tuple(_MEASURES)


def per_query(rankings: Iterable[Sequence[str]], judgements: Iterable[Mapping[str, int]]) -> dict[str, np.ndarray]:
    """Every metric for every query, x 100.

    The gain of a document is its grade, or 0 if unjudged or graded below 1; the discount of rank r is log2(r + 1).
    Recall, average precision and reciprocal rank treat any grade from 1 as relevant. `map` and `mrr` cover the whole
    given ranking.

    Args:
        rankings: for each query, ids of retrieved documents, best first, each id once.
        judgements: for each query, document id -> grade; at least one is positive.

    Returns:
        Metric name -> (Q,) float64, from 0 to 100.
    """
    measures, results = set(_MEASURES.values()), []
    for ranking, grades in zip(rankings, judgements, strict=True):
        # One query at a time, to bound memory. Descending scores keep the given order: trec_eval sorts by score and
        # breaks ties by id.
        run = {document: float(len(ranking) - rank) for rank, document in enumerate(ranking)}
        if len(run) != len(ranking):
            raise ValueError("a document is retrieved twice for one query")
        judged = {document: max(0, int(grade)) for document, grade in grades.items()}
        results.append(pytrec_eval.RelevanceEvaluator({"q": judged}, measures).evaluate({"q": run})["q"])
    return {name: 100 * np.array([result[key] for result in results], float) for name, key in _MEASURES.items()}


class Retrieval(evaluate.Metric):
    """`compute(predictions=rankings, references=judgements)` -> mean over queries of every metric in `METRICS`.

    A ranking is a list of document ids, best first; judgements are a list of {"id": document id, "grade": integer}.
    """

    def _info(self) -> evaluate.MetricInfo:
        text, number = datasets.Value("string"), datasets.Value("int32")
        return evaluate.MetricInfo(
            description="trec_eval's nDCG@10, recall@100, average precision, reciprocal rank; query means x 100.",
            citation="",
            inputs_description="predictions: ids of documents, best first; references: [{'id': ..., 'grade': ...}].",
            features=datasets.Features({"predictions": [text], "references": [{"id": text, "grade": number}]}),
        )

    def _compute(self, predictions, references) -> dict[str, float]:
        judgements = [{entry["id"]: entry["grade"] for entry in judged} for judged in references]
        return {name: float(values.mean()) for name, values in per_query(predictions, judgements).items()}
