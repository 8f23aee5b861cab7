"""Evaluation tasks: the interface, the options, the tasks by name, their scores and train/test contamination."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from common.errors import BadInput
from eval import sts
from eval.encode import Encoder
from eval.retrieval import beir, in_domain
from eval.scores import Result
from eval.text_files import tidy
from eval.transfer import tasks as transfer


class Task(Protocol):
    """A frozen record of a data set and how it is scored."""

    name: str
    split: str

    def load(self, data_dir: str | Path) -> object:
        """The data; BadInput with file and line where it is missing, malformed or not the published one."""

    def score(self, encode: Encoder, data_dir: str | Path) -> Result:
        """Rows of scores.json: what was measured, how, on how many examples, and the value."""


@dataclass(frozen=True)
class Options:
    """What a user can choose about tasks.

    Attributes:
        split: STS: `test` or `dev` (STS-B dev and SICK-R trial); BEIR: which judgements.
        mode: transfer: `test`, `fasttest` or `dev`, a key of `eval.transfer.validation.MODES`.
        beir: BEIR: folders below DATA_DIR/beir, or `paper14`, `nano`.
        embeddings: BEIR: folder that keeps document vectors, so that a stopped run can resume.
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


GROUPS: dict[str, Callable[[Options], Sequence[Task]]] = {
    "sts": lambda o: sts.tasks(o.split),
    "sts17": lambda o: sts.crosslingual("STS17", o.split),
    "sts22": lambda o: sts.crosslingual("STS22", o.split),
    "transfer": lambda o: transfer.tasks(o.mode, o.device, o.progress),
    "retrieval": lambda o: in_domain.tasks(o.split, o.directions, o.duplicates),
    "beir": lambda o: beir.tasks(o.beir, o.split, o.embeddings, o.device),
    "nanobeir": lambda o: beir.tasks(["nano"] if o.split == "test" else [], o.split, o.embeddings, o.device),
}
NEEDS = {"beir": "--beir NAME ... (folders below DATA_DIR/beir, paper14 or nano)"}  # the others: --split test


def tasks_named(names: Iterable[str], options: Options) -> list[Task]:
    """Tasks by group (`sts`) or name (`STS12`, any case), each once; BadInput with the known ones otherwise."""
    known = {task.name.lower(): task for group in GROUPS.values() for task in group(options)}
    chosen: list[Task] = []
    for name in names:
        if name.lower() in GROUPS:
            found = GROUPS[name.lower()](options)
            if not found:
                raise BadInput(f"--tasks {name} needs {NEEDS.get(name.lower(), '--split test')}")
            chosen += found
        elif name.lower() in known:
            chosen.append(known[name.lower()])
        else:
            choices = ", ".join([*GROUPS, *(task.name for task in known.values())])
            raise BadInput(f"task '{name}' is unknown for split '{options.split}'; choose from: {choices}")
    return list({task.name: task for task in chosen}.values())


def score_all(encode: Encoder, tasks: Sequence[Task], data_dir: str | Path) -> dict[Task, Result]:
    return {task: task.score(encode, data_dir) for task in tasks}


def count_seen(training: Iterable[str], tests: Sequence[Task], data_dir: str | Path) -> dict[str, dict[str, int]]:
    """For each STS task, how many of its distinct sentences are in the training text: {task: {seen, sentences}}.

    Sentences are compared as strings, with runs of white space as one space.
    """
    pairs = {task.name: sts.merged(task.load(data_dir)) for task in tests if isinstance(task, sts.StsTask)}
    texts = {name: {*each.left, *each.right} for name, each in pairs.items()}
    wanted = set().union(*texts.values())
    found = {sentence for sentence in map(tidy, training) if sentence in wanted}
    return {name: {"seen": len(mine & found), "sentences": len(mine)} for name, mine in texts.items()}


def with_share_seen(rows: list[dict], seen: dict[str, dict[str, int]]) -> list[dict]:
    """The rows of scores.json, with `seen_in_training`, a share, in those of the counted tasks."""
    shares = {name: each["seen"] / each["sentences"] for name, each in seen.items()}
    return [row | ({"seen_in_training": shares[row["task"]]} if row["task"] in shares else {}) for row in rows]


def describe_seen(seen: dict[str, dict[str, int]]) -> str:
    """One line for the log; empty where no sentence was seen."""
    parts = [f"{name} {each['seen']:,} of {each['sentences']:,}" for name, each in seen.items() if each["seen"]]
    return f"the training text holds test sentences: {', '.join(parts)}" if parts else ""
