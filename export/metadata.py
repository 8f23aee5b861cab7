"""The YAML head of the card, which the hub reads.

Scores stand there as `model-index`. The newer `.eval_results/` files are not written: their entries name a dataset of
the hub that is registered as a benchmark, and a task in it; SentEval's files, which are read here, are none.
"""

from __future__ import annotations

from huggingface_hub import EvalResult, ModelCardData

from eval.scores import AVERAGE, headline
from export.facts import Facts
from export.model import Model
from export.text import plain

_TASK_TYPES = {"spearman": "semantic-similarity", "accuracy": "text-classification"}  # everything else is retrieval


def metadata(model: Model, facts: Facts) -> ModelCardData:
    """Tags, base model and results; the licence is left out, since nothing states it."""
    method = plain(facts.method) if facts.method else None
    library = None if model.only_here else "sentence-transformers" if model.has_modules else "transformers"
    libraries = ["transformers"] if library else []
    return ModelCardData(
        model_name=plain(model.name),
        base_model=facts.base_model,
        library_name=library,
        pipeline_tag="sentence-similarity",
        tags=["feature-extraction", "sentence-similarity", *libraries, *([method] if method else [])],
        eval_results=[_result(row) for row in headline(facts.rows) if row["task"] != AVERAGE] or None,
    )


def _result(row: dict) -> EvalResult:
    task, metric = plain(row["task"]), plain(row["metric"])
    return EvalResult(
        task_type=_TASK_TYPES.get(metric, "information-retrieval"),
        dataset_type=task.lower().replace(" ", "-"),
        dataset_name=task,
        dataset_split=plain(row["split"]),
        metric_type=f"cosine_{metric}" if metric == "spearman" else metric,
        metric_name=f"{metric} x 100, {plain(row.get('aggregation', 'aggregation not stated'))}",
        metric_value=round(row["value"], 4),
    )
