"""Dev sets select a run's best model and compare it with the initial one: pairs or a search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import BadInput
from eval.compare.intervals import Items, percentile, resampled_figures
from eval.encode import Encoder
from eval.metrics.correlation import spearman
from eval.metrics.retrieval import METRICS
from eval.retrieval.beir import WHOLE, BeirSet, BeirTask, drops_own_id, name_of, read_set
from eval.sts import Pairs, similarities

RESAMPLES = 2000
_MANY = 20  # examples; a bootstrap of fewer is overconfident
BETTER, WORSE, ALIKE = "better", "worse", "not told apart"
IS = {BETTER: "is better than", WORSE: "is worse than", ALIKE: "cannot be told apart from"}


@dataclass(frozen=True)
class DevSet:
    """Examples to score an encoder on.

    Attributes:
        metric: its name in the log, such as `stsb_spearman`.
        content: the examples as JSON values; part of a run's identity.
        items: encoder -> the scores of every example.
        choosing: indices of the examples that select the best model; None: all.
        judging: indices of the examples that judge the result; None: all.
        apart: whether the judging examples are others than the choosing ones.
    """

    metric: str
    content: Any
    items: Callable[[Encoder], Items]
    choosing: Sequence[int] | None = None
    judging: Sequence[int] | None = None
    apart: bool = False

    def scores(self, encode: Encoder) -> dict[str, float]:
        """METRIC -> the score that selects the best model, as a run logs it."""
        return {self.metric: self.score_of(self.items(encode))}

    def score_of(self, items: Items) -> float:
        """That score, from the scores of every example."""
        return score_of(_part(items, self.choosing))

    def verdict(self, initial: Items, result: Items) -> dict[str, Any]:
        """Compare result and checkpoint on the judging examples, see `verdict`."""
        facts = verdict(_part(initial, self.judging), _part(result, self.judging))
        return facts | {"apart": self.apart}


def _part(items: Items, chosen: Sequence[int] | None) -> Items:
    if chosen is None:
        return items
    return {name: values[np.asarray(chosen)] for name, values in items.items()}


def score_of(items: Items) -> float:
    """Spearman's correlation of pairs, or the mean over queries, x 100."""
    if "gold" in items:
        return float(spearman(items["similarity"], items["gold"]))
    return 100 * float(items["value"].mean())


def pairs_set(metric: str, pairs: Pairs) -> DevSet:
    """Graded pairs, scored by Spearman's correlation."""
    gold = np.array(pairs.gold)

    def items(encode: Encoder) -> Items:
        return {"similarity": similarities(encode, pairs), "gold": gold}

    return DevSet(metric, vars(pairs), items)


def search_set(folder: str | Path, splits: Sequence[str]) -> DevSet:
    """A folder in BEIR's format, scored by nDCG@10.

    The queries of the first split select the model, those of the last judge it.

    Raises:
        BadInput: with file and line if the folder is malformed; a query of both splits.
    """
    parts = [read_set(Path(folder), split) for split in splits]
    if both := set.intersection(*(set(part.queries) for part in parts)) if parts[1:] else set():
        files = " and ".join(f"qrels/{split}.tsv" for split in splits)
        raise BadInput(
            f"{folder}: query '{min(both)}' is in {files}: it cannot both select and judge the "
            "model; remove one"
        )
    queries = {name: text for part in parts for name, text in part.queries.items()}
    grades = {name: graded for part in parts for name, graded in part.grades.items()}
    whole = BeirSet(parts[0].corpus, queries, grades)
    numbers = {name: number for number, name in enumerate(queries)}
    chosen = [numbers[name] for name in parts[0].queries]
    judging = [numbers[name] for name in parts[-1].queries]
    name = name_of(Path(folder))
    task = BeirTask(name, without_own_id=drops_own_id(name))

    def items(encode: Encoder) -> Items:
        return {"value": task.per_query(encode, WHOLE, whole)[METRICS[0]] / 100}

    rule = ["without own id"] if task.without_own_id else []
    content = [whole.corpus.sha256, queries, grades, *rule]
    return DevSet("search_ndcg", content, items, chosen, judging, apart=len(parts) > 1)


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
    text += f", 95 % interval {low:+.2f} to {high:+.2f}"
    if not facts.get("apart", True):
        text += ", on the examples that selected it"
    if facts.get("examples", _MANY) < _MANY:
        text += f", from only {facts['examples']} examples"
    return f"the result {IS[facts['verdict']]} the checkpoint it started from ({text})"
