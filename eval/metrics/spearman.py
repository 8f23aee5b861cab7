"""Spearman's correlation x 100 as a metric of `evaluate`, which the STS tables are made with.

evaluate.load("eval/metrics/spearman.py").compute(predictions=cosines, references=gold)
"""

from tempfile import TemporaryDirectory

import datasets
import evaluate
import numpy as np

from eval.metrics.correlation import spearman


class Spearman(evaluate.Metric):
    """`compute(predictions, references)`, both (N,), -> {"spearman": -100 to 100}."""

    def _info(self) -> evaluate.MetricInfo:
        number = datasets.Value("float64")
        return evaluate.MetricInfo(
            description="Spearman's rank correlation x 100; ties share their mean rank.",
            citation="",
            inputs_description="predictions: similarities; references: gold scores; both (N,)",
            features=datasets.Features({"predictions": number, "references": number}),
        )

    def _compute(self, predictions, references) -> dict[str, float]:
        return {"spearman": float(spearman(np.array(predictions), np.array(references)))}


def scored(similarity: np.ndarray, gold: np.ndarray) -> float:
    """The metric of similarities and gold scores, both (N,).

    `evaluate` makes a folder for each metric, in a place that several users may share: it gets one
    of its own, which is removed.
    """
    with TemporaryDirectory(prefix="metric-") as folder:
        metric = Spearman(keep_in_memory=True, cache_dir=folder)
        return metric.compute(predictions=similarity, references=gold)["spearman"]
