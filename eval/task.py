"""What an evaluation task is: a frozen record with `load(data_dir)` and `score(encode, data_dir) -> Result`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

DOWNSTREAM = Path("senteval") / "downstream"
Encoder = Callable[[list[str]], np.ndarray]  # N sentences -> (N, D)


@dataclass(frozen=True)
class Options:
    """What a user can choose about tasks; each family of tasks reads the fields that concern it.

    Attributes:
        split: STS: `test` or `dev` (STS-B dev and SICK-R trial); BEIR: which judgements.
        mode: transfer: `test`, `fasttest` or `dev`, a key of `eval.transfer.validation.MODES`.
        beir: BEIR: folders below DATA_DIR/beir, or `paper14`, `nano`.
        embeddings: BEIR: folder in which document vectors stay, so that a stopped run can go on.
        directions: in-domain retrieval: `one` (97 queries) or `both` (194).
        duplicates: in-domain retrieval: what is left out of the corpus, the query's `own` row or `identical` strings.
        device: where classifiers are trained and documents searched.
        progress: show bars.
    """

    split: str = "test"
    mode: str = "test"
    beir: tuple[str, ...] = ()
    embeddings: str | None = None
    directions: str = "one"
    duplicates: str = "own"
    device: str = "cpu"
    progress: bool = False


@dataclass(frozen=True)
class Result:
    """The rows of one task, the headline first, and its figures example by example.

    `items` holds what a paired comparison resamples: `similarity` and `gold` of every pair, or `value` from 0
    to 1 of every query or sentence, each (n,).
    """

    rows: list[dict[str, Any]]
    items: dict[str, np.ndarray] = field(default_factory=dict)


class Task(Protocol):
    """Anything that can be scored."""

    name: str
    split: str

    def load(self, data_dir: str | Path) -> object:
        """The data; BadInput with file and line where it is missing, malformed or not the published one."""

    def score(self, encode: Encoder, data_dir: str | Path) -> Result:
        """Rows of scores.json: what was measured, how, on how many examples, and the value."""


def row(task: str, split: str, metric: str, aggregation: str, n: int, value: float, mode: str = "test") -> dict:
    """One row of scores.json, without model and run."""
    return {"task": task, "split": split, "mode": mode, "metric": metric, "aggregation": aggregation, "n": n,
            "value": float(value)}  # fmt: skip


def average(rows: list[dict]) -> dict:
    """The papers' average over headline rows: the plain mean of the values after rounding each to two decimals."""
    mean = sum(round(one["value"], 2) for one in rows) / len(rows)
    count = sum(one["n"] for one in rows)
    return {**rows[0], "task": "Avg.", "aggregation": "mean of tasks", "n": count, "value": mean}
