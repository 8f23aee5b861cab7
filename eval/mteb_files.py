"""`python -m eval --format mteb`: result files of mteb, written by mteb itself.

A score is written where protocol and data are mteb's: STS12 to STS16, STS-B and BEIR's sets.
SentEval's SICK-R has other pairs, and its transfer tasks train another classifier, so those are
left out.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from common.errors import BadInput
from common.flags import output_folder

logger = logging.getLogger(__name__)
# Names in mteb that a change of case does not give; CQADupStack is twelve tasks there.
_NAMES = {
    "sts-b": "STSBenchmark",
    "trec-covid": "TRECCOVID",
    "fiqa": "FiQA2018",
    "webis-touche2020": "Touche2020",
    "quora": "QuoraRetrieval",
    "dbpedia-entity": "DBPedia",
    "climate-fever": "ClimateFEVER",
}
_BEIR = ("NFCorpus", "NQ", "ArguAna", "SCIDOCS", "SciFact", "HotpotQA", "FEVER")
_STS = ("STS12", "STS13", "STS14", "STS15", "STS16")
_NAMES |= {name.lower(): name for name in (*_STS, *_BEIR)}
_METRICS = {
    "spearman": "cosine_spearman",
    "pearson": "cosine_pearson",
    "ndcg@10": "ndcg_at_10",
    "recall@100": "recall_at_100",
}


def require_mteb(output: str | None) -> None:
    """BadInput if mteb is not installed, or the folder for its files cannot be written."""
    if find_spec("mteb") is None:
        raise BadInput("--format mteb needs mteb: pip install -r requirements-extra.txt")
    if output is None:
        raise BadInput("--format mteb needs --output DIR")
    output_folder(output)


def scores_by_task(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Task of mteb -> its metric -> value from 0 to 1; rows of other tasks are left out."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        task = _NAMES.get(row["task"].lower())
        whole = row["aggregation"] in ("all", "single", "mean of queries")
        if task and whole and row["split"] == "test" and row["metric"] in _METRICS:
            found[task][_METRICS[row["metric"]]] = row["value"] / 100
    return found


def write_mteb(folder: Path, model: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write `results/MODEL/no_revision_available/TASK.json`, which `mteb.ResultCache` reads."""
    import mteb
    from mteb.models import ModelMeta
    from mteb.results import TaskResult

    cache, scored = mteb.ResultCache(folder), scores_by_task(rows)
    meta = ModelMeta.create_empty({"name": model if "/" in model else f"local/{model}"})
    for name, values in scored.items():
        task = mteb.get_task(name)
        scores = {"default": {**values, "main_score": values[task.metadata.main_score]}}
        cache.save_to_cache(
            TaskResult.from_task_results(task, {"test": scores}, evaluation_time=0.0), meta
        )
    logger.info("%s: results of %s", folder, ", ".join(scored) or "no task of mteb")
