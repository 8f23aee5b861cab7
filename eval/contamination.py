"""Train/test contamination: test sentences that are in the training text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from eval.sts import StsTask, merged
from eval.tasks import Task


def count_seen(training: Iterable[str], tests: Sequence[Task], data_dir: str | Path) -> dict[str, dict[str, int]]:
    """For each STS task, how many of its distinct sentences are in the training text: {task: {seen, sentences}}.

    Sentences are compared as strings, with runs of white space as one space.
    """
    texts = {task.name: _sentences(task, data_dir) for task in tests if isinstance(task, StsTask)}
    wanted = set().union(*texts.values())
    found = {sentence for sentence in (" ".join(line.split()) for line in training) if sentence in wanted}
    return {name: {"seen": len(mine & found), "sentences": len(mine)} for name, mine in texts.items()}


def _sentences(task: StsTask, data_dir: str | Path) -> set[str]:
    pairs = merged(task.load(data_dir))
    return {*pairs.left, *pairs.right}


def with_share_seen(rows: list[dict], seen: dict[str, dict[str, int]]) -> list[dict]:
    """The rows of scores.json, with `seen_in_training`, a share, in those of the counted tasks."""
    shares = {name: each["seen"] / each["sentences"] for name, each in seen.items()}
    return [row | ({"seen_in_training": shares[row["task"]]} if row["task"] in shares else {}) for row in rows]


def describe_seen(seen: dict[str, dict[str, int]]) -> str:
    """One line for the log; empty where no sentence was seen."""
    told = [f"{name} {each['seen']:,} of {each['sentences']:,}" for name, each in seen.items() if each["seen"]]
    return f"the training text holds test sentences: {', '.join(told)}" if told else ""
