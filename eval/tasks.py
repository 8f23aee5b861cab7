"""Evaluation tasks: interface, options, tasks by name, scores, and train/test contamination."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from common.errors import BadInput
from eval import sts
from eval.encode import Encoder
from eval.retrieval import beir, in_domain
from eval.scores import Result
from eval.text_files import tidy
from eval.transfer import tasks as transfer
from eval.transfer import word_content


class Task(Protocol):
    """A frozen record of a data set and how it is scored."""

    @property
    def name(self) -> str: ...

    @property
    def split(self) -> str: ...

    def load(self, data_dir: str | Path) -> Any:
        """The data; BadInput with file and line if it is malformed or not the published data."""

    def score(self, encode: Encoder, data_dir: str | Path) -> Result:
        """The rows of scores.json and the score of every example."""


@dataclass(frozen=True)
class Options:
    """Options of tasks.

    Attributes:
        split: STS: `test` or `dev` (STS-B dev and SICK-R trial); BEIR: the split of the judgements.
        mode: transfer: `test`, `fasttest` or `dev`, a key of `eval.transfer.validation.MODES`.
        beir: folders in DATA_DIR/beir, or `paper14`, `nano`.
        cache_dir, search, language: see `eval.retrieval.beir.BeirTask`.
        device: where classifiers are trained and documents searched.
    """

    split: str = "test"
    mode: str = "test"
    beir: tuple[str, ...] = ()
    cache_dir: str | None = None
    search: str = "dense"
    language: str = "english"
    device: str = "cpu"


def _sets(names: Sequence[str], o: Options) -> Sequence[Task]:
    how = {"search": o.search, "language": o.language, "device": o.device}
    return beir.tasks(names, o.split, cache_dir=o.cache_dir, **how)


GROUPS: dict[str, Callable[[Options], Sequence[Task]]] = {
    "sts": lambda o: sts.tasks(o.split),
    "transfer": lambda o: transfer.tasks(o.mode, o.device),
    "words": lambda o: word_content.tasks(o.device) if o.split == "test" else [],
    "retrieval": lambda o: in_domain.tasks(o.split),
    "beir": lambda o: _sets(o.beir, o),
    "nanobeir": lambda o: _sets(["nano"] if o.split == "test" else [], o),
}


def tasks_named(names: Iterable[str], options: Options) -> list[Task]:
    """Tasks by group (`sts`) or name (`STS12`, any case), each once; BadInput lists those known."""
    known = {task.name.lower(): task for group in GROUPS.values() for task in group(options)}
    chosen: list[Task] = []
    for name in names:
        if name.lower() in GROUPS:
            group = GROUPS[name.lower()](options)
            if not group:
                needed = "--split test"
                if name.lower() == "beir":
                    needed = "--beir NAME ... (folders in DATA_DIR/beir, paper14 or nano)"
                raise BadInput(f"--tasks {name} needs {needed}")
            chosen += group
        elif name.lower() in known:
            chosen.append(known[name.lower()])
        else:
            choices = ", ".join([*GROUPS, *(task.name for task in known.values())])
            raise BadInput(
                f"unknown task '{name}' for split '{options.split}'; choose from: {choices}"
            )
    return list({task.name: task for task in chosen}.values())


def tasks_chosen(
    names: Iterable[str], dev_file: str | PathLike | None, options: Options
) -> list[Task]:
    """`tasks_named` and the user's own pairs; without either, the STS sets."""
    names = [*names]
    if not names and not dev_file:
        names = ["sts"]
    tasks = tasks_named(names, options)
    if dev_file:
        tasks.append(sts.own_pairs(dev_file))
    return tasks


def score_all(encode: Encoder, tasks: Sequence[Task], data_dir: str | Path) -> dict[Task, Result]:
    return {task: task.score(encode, data_dir) for task in tasks}


def count_seen(
    training: Iterable[str], tests: Sequence[Task], data_dir: str | Path
) -> dict[str, dict[str, int]]:
    """Count the distinct sentences of each STS task that are in the training text.

    Sentences are compared as strings with normalised white space.

    Returns:
        Task name -> `seen` and `sentences`.
    """
    texts: dict[str, set[str]] = {}
    for task in tests:
        if isinstance(task, sts.StsTask):
            pairs = sts.merged(task.load(data_dir))
            texts[task.name] = {*pairs.left, *pairs.right}
    wanted = set().union(*texts.values())
    seen = {sentence for sentence in map(tidy, training) if sentence in wanted}
    return {
        name: {"seen": len(sentences & seen), "sentences": len(sentences)}
        for name, sentences in texts.items()
    }


def describe_seen(seen: dict[str, dict[str, int]]) -> str:
    """One line for the log; empty if no sentence was seen."""
    parts = [
        f"{name} {counts['seen']:,} of {counts['sentences']:,}"
        for name, counts in seen.items()
        if counts["seen"]
    ]
    return f"the training text contains test sentences: {', '.join(parts)}" if parts else ""
