"""The two sides of a comparison: figures over runs, from scores files or as published.

`published.yaml` names the source of every published figure; a test checks it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import BadInput
from common.files import read_yaml
from eval.scores import AVERAGE, Key, headline, read_scores, scores_of

PUBLISHED = Path(__file__).with_name("published.yaml")
PREFIX = "published:"  # of a record's id on the command line
# Of the encoder, in every row, and of retrieval; files of old versions have none.
SETTINGS = ("pooling", "max_length", "bf16", "prompts", "search", "language")
# model type, layers, width, vocabulary of the four backbones that these papers report
_BACKBONES = {
    ("bert", 12, 768, 30522): "bert-base-uncased",
    ("bert", 24, 1024, 30522): "bert-large-uncased",
    ("roberta", 12, 768, 50265): "roberta-base",
    ("roberta", 24, 1024, 50265): "roberta-large",
}


@dataclass(frozen=True)
class Score:
    """One figure, x 100.

    Attributes:
        mean: over the runs.
        runs: how many.
        std: over the runs, with n - 1; None for one run or if not published.
        low, high: the worst and the best run, if published.
        examples: number of pairs, sentences or queries; None if not published.
        source: of a published figure; "" for our files.
        protocol: `aggregation` of our rows; None for published figures.
        data: a hash of own pairs or a set of BEIR; None for others, and in files of old versions.
    """

    mean: float
    runs: int = 1
    std: float | None = None
    low: float | None = None
    high: float | None = None
    examples: int | None = None
    source: str = ""
    protocol: str | None = None
    data: str | None = None

    @classmethod
    def over(cls, values: Sequence[float], **more: Any):
        """The score of several runs from their figures."""
        std = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return cls(float(np.mean(values)), len(values), std, **more)

    def __str__(self) -> str:
        if self.std is None:
            return f"{self.mean:.2f}"
        extent = ""
        if self.low is not None and self.high is not None:
            extent = f", {self.low:.2f} to {self.high:.2f}"
        return f"{self.mean:.2f} ± {self.std:.2f} (n = {self.runs}{extent})"


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
        label: as the user wrote it.
        scores: the figures; if a file has several with one key, the headline.
        headline: the keys to show.
        averaged: (split, mode, metric) -> the tasks in its `Avg.`.
        file: the scores file if there is exactly one; only then can examples be resampled.
        settings: `SETTINGS` of the scores files, as far as they have them.
        published, backbone, note: of a published record.
        spread: the id of the record that shows the spread of the same published method over runs.
    """

    label: str
    scores: dict[Key, Score]
    headline: tuple[Key, ...]
    averaged: dict[tuple[str, ...], frozenset[str]]
    file: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    published: bool = False
    backbone: str | None = None
    spread: str | None = None
    note: str | None = None


def from_files(label: str, paths: Sequence[Path]) -> Side:
    """A side from scores.json files, one per run: mean and standard deviation over the files.

    Raises:
        BadInput: a file is not a scores.json, is given twice, or has other tasks or examples than
            the first, or other settings than one before it.
    """
    files = [_rows_by_key(path) for path in paths]
    first, shown = files[0]
    settings: dict[str, Any] = {}
    for i, (path, (rows, keys)) in enumerate(zip(paths, files, strict=True)):
        if path.resolve() in {other.resolve() for other in paths[:i]}:
            raise BadInput(f"{path}: given twice on one side; give each run once")
        here = {name: rows[key][name] for key in keys for name in SETTINGS if name in rows[key]}
        if here:
            by_role = [rows[key].get("prompts", {}) for key in keys]
            here["prompts"] = {role: text for some in by_role for role, text in some.items()}
        different = unlike(here, settings, ", before ")
        unequal = set(shown) ^ set(keys)
        for key in set(shown) & set(keys):
            for name in {"n", "data"} & rows[key].keys() & first[key].keys():
                if rows[key][name] != first[key][name]:
                    unequal.add(key)
        if different := [*map(str, sorted(unequal)[:1]), *different]:
            raise BadInput(
                f"{path}: differs from {paths[0]} ({', '.join(different)}); score all runs alike"
            )
        settings |= here
    scores = {}
    for key in (key for key in first if all(key in rows for rows, _ in files)):
        protocol = " and ".join(sorted({rows[key]["aggregation"] for rows, _ in files}))
        values = [rows[key]["value"] for rows, _ in files]
        more = {"examples": first[key]["n"], "protocol": protocol, "data": first[key].get("data")}
        scores[key] = Score.over(values, **more)
    averaged: dict[tuple[str, ...], frozenset[str]] = {
        key[1:]: frozenset(other.task for other in shown if other[1:] == key[1:]) - {AVERAGE}
        for key in shown
    }
    return Side(
        label, scores, tuple(shown), averaged, paths[0] if len(paths) == 1 else None, settings
    )


def unlike(a: Mapping[str, Any], b: Mapping[str, Any], between: str = " and ") -> list[str]:
    """The settings that are known of both and differ, such as `max_length 32 and 128`."""
    known = [name for name in SETTINGS if name in a and name in b]
    return [f"{name} {a[name]}{between}{b[name]}" for name in known if a[name] != b[name]]


def _rows_by_key(path: Path) -> tuple[dict[Key, dict], list[Key]]:
    """Rows by key, and the keys of headline rows; other rows only if their key is unique."""
    rows = read_scores(path)
    shown = {Key.of(row): row for row in headline(rows)}
    counts = Counter(map(Key.of, rows))
    unique = {key: row for row in rows if counts[key := Key.of(row)] == 1}
    return unique | shown, list(shown)


_content = cache(partial(read_yaml, PUBLISHED))


@cache
def records() -> dict[str, Side]:
    """All published records by id."""
    return {record["id"]: _side(record) for record in _content()["records"]}


def published(name: str | Mapping[str, Any]) -> Side:
    """The record with this id, or of this content, as a method's file may have it.

    BadInput for an unknown id.
    """
    if not isinstance(name, str):
        return _side(name)
    if name not in records():
        raise BadInput(f"unknown record '{PREFIX}{name}'; python -m eval.compare --list shows all")
    return records()[name]


def side(text: str) -> Side:
    """Parse one side: `published:ID`, or scores files separated by commas."""
    if text.startswith(PREFIX):
        return published(text.removeprefix(PREFIX))
    paths = [Path(part) for part in ([text] if Path(text).exists() else text.split(","))]
    return from_files(text, [scores_of(path) if path.is_dir() else path for path in paths])


def backbone_of(config) -> str | None:
    """The published backbone of this architecture and size."""
    names = "num_hidden_layers", "hidden_size", "vocab_size"
    size = (getattr(config, name, None) for name in names)
    return _BACKBONES.get((config.model_type, *size))


def _side(record: Mapping[str, Any]) -> Side:
    sources, sets = _content()["sources"], _content()["average_of"]
    averaged: dict[tuple[str, ...], frozenset[str]] = {}
    for metric, tasks in sets.items():
        averaged["test", "test", metric] = frozenset(tasks)
    scores: dict[Key, Score] = {}
    for block in record["scores"]:
        split, metric = block.get("split", "test"), block.get("metric", "spearman")
        for task, value in block["values"].items():
            numbers = value if isinstance(value, dict) else {"mean": value}
            scores[Key(task, split, "test", metric)] = Score(
                float(numbers["mean"]),
                runs=record.get("runs", 1),
                std=numbers.get("std"),
                low=numbers.get("min"),
                high=numbers.get("max"),
                examples=block.get("n"),
                source=sources.get(block["source"], block["source"]),
            )
    return Side(
        label=PREFIX + record["id"],
        scores=scores,
        headline=tuple(scores),
        averaged=averaged,
        published=True,
        backbone=record["backbone"],
        spread=record.get("spread"),
        note=record.get("note"),
    )
