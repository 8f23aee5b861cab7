"""A dev score selects a run's best model and compares it with the checkpoint."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from common.files import digest
from eval.compare.intervals import Items, percentile, resampled_figures, score_of
from eval.encode import Encoder
from eval.sts import Pairs, similarities

RESAMPLES = 2000
_MANY = 20  # examples; a bootstrap of fewer is overconfident
BETTER, WORSE, ALIKE = "better", "worse", "not told apart"
IS = {BETTER: "is better than", WORSE: "is worse than", ALIKE: "cannot be told apart from"}


@dataclass(frozen=True)
class DevScore:
    """A score x 100 of examples; the higher, the better.

    Attributes:
        metric: its name in the log: `dev_` and the measure, such as `dev_accuracy`.
        title: its name on a model card.
        data: the examples as JSON values; a run resumes only with the same.
        items: scores every example: `value`, (n,), from 0 to 1, whose mean is the score, or
            `similarity` and `gold`, (n,), whose Spearman's correlation is.
    """

    metric: str
    title: str
    data: Any
    items: Callable[[Encoder], Items]

    @property
    def identity(self) -> str:
        """A hash of the measure and its data, for run.json."""
        return digest([self.metric, self.data])

    def scores(self, encode: Encoder) -> dict[str, float]:
        """METRIC -> the score that selects the best model, as a run logs it."""
        return {self.metric: score_of(self.items(encode))}


def of_pairs(metric: str, title: str, pairs: Pairs) -> DevScore:
    """Spearman's correlation of cosine and gold score over pairs."""

    def items(encode: Encoder) -> Items:
        return {"similarity": similarities(encode, pairs), "gold": np.array(pairs.gold)}

    return DevScore(metric, title, vars(pairs), items)


def verdict(initial: Items, result: Items) -> dict[str, Any]:
    """Compare result and checkpoint on the same examples by a paired bootstrap.

    Returns:
        `examples`, `start` (the checkpoint) and `result` (x 100), `difference`, its 95 %
        `interval`, and `verdict`: `better` if the interval is above zero, `worse` if below, else
        `not told apart`.
    """
    # Two generators in one state draw the same examples for both.
    ours = resampled_figures(result, RESAMPLES, np.random.default_rng(0))
    theirs = resampled_figures(initial, RESAMPLES, np.random.default_rng(0))
    low, high = percentile(ours - theirs)
    before, after = score_of(initial), score_of(result)
    return {
        "examples": len(next(iter(initial.values()))),
        "start": before,
        "result": after,
        "difference": after - before,
        "interval": [low, high],
        "verdict": judged(low, high),
    }


def judged(low: float, high: float) -> str:
    """A difference with this interval in words: better, worse or not told apart."""
    if low > 0:
        return BETTER
    return WORSE if high < 0 else ALIKE


def in_words(facts: Mapping[str, Any]) -> str:
    """A verdict as one line."""
    low, high = facts["interval"]
    text = f"{facts['metric']} {facts['start']:.2f} -> {facts['result']:.2f}"
    text += f", 95 % interval {low:+.2f} to {high:+.2f}, on the examples that selected it"
    if facts.get("examples", _MANY) < _MANY:
        text += f", from only {facts['examples']} examples"
    return f"the result {IS[facts['verdict']]} the checkpoint it started from ({text})"
