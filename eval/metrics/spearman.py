"""Spearman's correlation x 100, the metric of the STS tables."""

import datasets
import evaluate
import numpy as np
from scipy.stats import spearmanr


class Spearman(evaluate.Metric):
    """`compute(predictions=cosines, references=gold)` -> {"spearman": -100 to 100}.

    0 if either side is constant, as for a collapsed model.
    """

    def _info(self) -> evaluate.MetricInfo:
        number = datasets.Value("float64")
        return evaluate.MetricInfo(
            description="Spearman's rank correlation x 100; ties share their mean rank.",
            citation="",
            inputs_description="predictions: similarities; references: gold scores; both (N,), N >= 2.",
            features=datasets.Features({"predictions": number, "references": number}),
        )

    def _compute(self, predictions, references) -> dict[str, float]:
        if np.ptp(predictions) == 0 or np.ptp(references) == 0:
            return {"spearman": 0.0}
        return {"spearman": 100 * float(spearmanr(predictions, references).statistic)}
