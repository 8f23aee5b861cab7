"""The evaluation tasks as data: files, split, number of pairs, and one way to score an encoder on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from errors import BadInput
from eval.sts import Encoder, Pairs, read_columns, read_sts_year, spearman

DOWNSTREAM = Path("senteval") / "downstream"


@dataclass(frozen=True)
class Task:
    """Sentence pairs with gold scores and the score of an encoder on them.

    Attributes:
        name: as the papers print it.
        split: which part of the data set.
        read: data folder -> pairs; raises BadInput with file and line.
        pairs: the published number of pairs; None for a user's own file.
        aggregation: `all` where subsets are concatenated, `single` where there is one set.
    """

    name: str
    split: str
    read: Callable[[Path], Pairs]
    pairs: int | None
    aggregation: str = "single"

    def load(self, data_dir: str | Path) -> Pairs:
        """The pairs; a number other than the published one is refused."""
        pairs = self.read(Path(data_dir))
        if self.pairs is not None and len(pairs.gold) != self.pairs:
            raise BadInput(
                f"{self.name} {self.split} has {len(pairs.gold)} scored pairs under {data_dir}, published are "
                f"{self.pairs}: the file is cut or changed; `python -m data.prepare sts` fetches the original"
            )
        return pairs

    def score(self, encode: Encoder, data_dir: str | Path) -> dict:
        """One row of scores.json: what was measured, how, on how many pairs, and the value (Spearman x 100)."""
        pairs = self.load(data_dir)
        return {
            "task": self.name,
            "split": self.split,
            "mode": "test",
            "metric": "spearman",
            "aggregation": self.aggregation,
            "n": len(pairs.gold),
            "value": spearman(encode, pairs),
        }


def _read_year(folder: str, subsets: Iterable[str], data_dir: Path) -> Pairs:
    parts = [read_sts_year(data_dir / DOWNSTREAM / "STS" / folder, subset) for subset in subsets]
    return sum(parts[1:], start=parts[0])


def _year(name: str, pairs: int, subsets: str) -> Task:
    read = partial(_read_year, f"{name}-en-test", subsets.split())
    return Task(name, "test", read, pairs, aggregation="all")


def _read_stsb(split: str, data_dir: Path) -> Pairs:
    return read_columns(data_dir / DOWNSTREAM / "STS" / "STSBenchmark" / f"sts-{split}.csv", 4, 5, 6)


def _read_sick(file: str, data_dir: Path) -> Pairs:
    return read_columns(data_dir / DOWNSTREAM / "SICK" / file, "relatedness_score", "sentence_A", "sentence_B")


# Subsets and numbers of pairs: the SemEval releases as SentEval reads them (STS13 without SMT).
STS_TEST = (
    _year("STS12", 3108, "MSRpar MSRvid SMTeuroparl surprise.OnWN surprise.SMTnews"),
    _year("STS13", 1500, "FNWN headlines OnWN"),
    _year("STS14", 3750, "deft-forum deft-news headlines images OnWN tweet-news"),
    _year("STS15", 3000, "answers-forums answers-students belief headlines images"),
    _year("STS16", 1186, "answer-answer headlines plagiarism postediting question-question"),
    Task("STS-B", "test", partial(_read_stsb, "test"), 1379),
    Task("SICK-R", "test", partial(_read_sick, "SICK_test_annotated.txt"), 4927),
)
STS_DEV = (
    Task("STS-B", "dev", partial(_read_stsb, "dev"), 1500),
    Task("SICK-R", "dev", partial(_read_sick, "SICK_trial.txt"), 500),
)
GROUPS = {"sts": {"test": STS_TEST, "dev": STS_DEV}}


def own_pairs(path: str) -> Task:
    """A user's own file: tab-separated, header `sentence1 sentence2 score`, scores from 0 to 5."""
    return Task(Path(path).stem, "file", lambda _: read_columns(Path(path), "score", "sentence1", "sentence2"), None)


def tasks_named(names: Iterable[str], split: str) -> list[Task]:
    """Tasks by group (`sts`) or name (`STS12`, any case); BadInput with the known ones otherwise."""
    known = {task.name.lower(): task for group in GROUPS.values() for task in group[split]}
    chosen: list[Task] = []
    for name in names:
        if name in GROUPS:
            chosen += GROUPS[name][split]
        elif name.lower() in known:
            chosen.append(known[name.lower()])
        else:
            options = ", ".join([*GROUPS, *(task.name for task in known.values())])
            raise BadInput(f"task '{name}' is unknown for split '{split}'; choose from: {options}")
    return chosen


def average(rows: list[dict]) -> dict:
    """The papers' average: the plain mean of the values after rounding each to two decimals."""
    mean = sum(round(row["value"], 2) for row in rows) / len(rows)
    return {
        **rows[0],
        "task": "Avg.",
        "aggregation": "mean of tasks",
        "n": sum(r["n"] for r in rows),
        "value": mean,
    }
