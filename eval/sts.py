"""Semantic textual similarity: the papers' seven sets, their dev splits, and a user's own pairs.

Protocol: SimCSE's modified SentEval (arXiv 2104.08821, appendix B): cosine, no trained regressor;
the subsets of a year are concatenated and give one Spearman correlation ("all"). Further rows are
what other papers report: the mean of the subsets' correlations, that mean weighted by pairs
(SentEval's "wmean"), and Pearson's correlation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import BadInput
from common.files import digest
from eval.encode import Encoder
from eval.metrics.correlation import pearson
from eval.metrics.cosine import pair_cosines
from eval.scores import Result, row
from eval.text_files import DOWNSTREAM, read_lines, tidy

WHOLE = ""  # the name of the only subset of a set without subsets


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs and their gold scores, row by row."""

    left: list[str]
    right: list[str]
    gold: list[float]

    def __add__(self, other: Pairs) -> Pairs:
        return Pairs(self.left + other.left, self.right + other.right, self.gold + other.gold)


def _score(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value <= 5:
        raise BadInput(f"{where}: '{text}' is not a score from 0 to 5")
    return value


def _cells(line: str, where: str, columns: Sequence[int]) -> list[str]:
    cells = line.split("\t")
    if len(cells) <= max(columns):
        raise BadInput(
            f"{where}: {len(cells)} columns separated by tabs; expected at least {max(columns) + 1}"
        )
    return [cells[column] for column in columns]


def read_sts_year(folder: Path, subset: str) -> Pairs:
    """A subset of STS12 to STS16: `STS.input.X.txt` and `STS.gs.X.txt`, without unscored pairs."""
    texts, golds = folder / f"STS.input.{subset}.txt", folder / f"STS.gs.{subset}.txt"
    pairs = Pairs([], [], [])
    lines = zip(read_lines(texts), read_lines(golds), strict=True)
    for number, (line, gold) in enumerate(lines, start=1):
        if gold.strip():
            left, right = _cells(line, f"{texts}:{number}", (0, 1))
            pairs.left.append(tidy(left))
            pairs.right.append(tidy(right))
            pairs.gold.append(_score(gold.strip(), f"{golds}:{number}"))
    return pairs


def read_columns(path: Path, columns: Sequence[int] | Sequence[str]) -> Pairs:
    """Tab-separated pairs without quoting.

    Args:
        path: the file.
        columns: of the score and the two sentences, by number, or by name from a header line.

    Raises:
        BadInput: with file and line.
    """
    lines, first = read_lines(path), 1
    while lines and not lines[-1].strip():  # an editor's empty last line
        lines.pop()
    names = [name for name in columns if isinstance(name, str)]
    places = [number for number in columns if isinstance(number, int)]
    if names:
        header, lines, first = (lines or [""])[0].split("\t"), lines[1:], 2
        if wrong := [name for name in names if header.count(name) != 1]:
            raise BadInput(
                f"{path}:1: the header needs the columns {', '.join(names)}, separated by tabs; "
                f"'{wrong[0]}' occurs {header.count(wrong[0])} times"
            )
        places = [header.index(name) for name in names]
    pairs = Pairs([], [], [])
    for number, line in enumerate(lines, start=first):
        where = f"{path}:{number}"
        gold, left, right = _cells(line, where, places)
        pairs.left.append(tidy(left))
        pairs.right.append(tidy(right))
        pairs.gold.append(_score(gold, where))
    return pairs


@dataclass(frozen=True)
class StsTask:
    """Sentence pairs with gold scores.

    Attributes:
        name: as in the papers.
        split: split of the data set.
        read: data folder -> subset name -> pairs; raises BadInput with file and line.
        pairs: the published number of pairs; None for a user's own file.
    """

    name: str
    split: str
    read: Callable[[Path], dict[str, Pairs]]
    pairs: int | None

    def load(self, data_dir: str | Path) -> dict[str, Pairs]:
        """The pairs by subset; BadInput for another number than published, or equal scores."""
        changed = (
            "a file is truncated or changed: `python -m data.prepare sts` downloads the original"
        )
        try:
            subsets = self.read(Path(data_dir))
        except ValueError as error:  # of two files of a year, one is longer
            raise BadInput(
                f"{self.name} in {data_dir} has more texts than scores, or fewer; {changed}"
            ) from error
        gold = merged(subsets).gold
        if self.pairs is not None and len(gold) != self.pairs:
            wrong = f"{len(gold)} scored pairs instead of {self.pairs}"
            raise BadInput(f"{self.name} {self.split} in {data_dir} has {wrong}; {changed}")
        if len(set(gold)) < 2:
            said = "a correlation needs different scores"
            raise BadInput(f"{self.name} has {len(gold)} pairs of one score; {said}")
        return subsets

    def score(self, encode: Encoder, data_dir: str | Path) -> Result:
        """Headline: Spearman over all pairs; then Pearson, and means over the subsets and each."""
        from eval.metrics.spearman import scored  # here: `evaluate` is a slow import

        measures: dict[str, Callable[..., Any]] = {"spearman": scored, "pearson": pearson}
        subsets = self.load(data_dir)
        everything = merged(subsets)
        similarity, gold = similarities(encode, everything), np.array(everything.gold)
        make_row, rows = partial(row, self.name, self.split), []
        for metric, measure in measures.items():
            whole = "single" if len(subsets) == 1 else "all"
            rows.append(make_row(metric, whole, len(gold), measure(similarity, gold)))
        if len(subsets) > 1:
            sizes = [len(pairs.gold) for pairs in subsets.values()]
            ends = np.cumsum(sizes)[:-1]
            parts = list(zip(np.split(similarity, ends), np.split(gold, ends), strict=True))
            for metric, measure in measures.items():
                values = [measure(*part) for part in parts]
                weighted = np.average(values, weights=sizes)
                rows.append(make_row(metric, "mean", len(gold), np.mean(values)))
                rows.append(make_row(metric, "wmean", len(gold), weighted))
                for name, count, value in zip(subsets, sizes, values, strict=True):
                    rows.append(make_row(metric, f"subset {name}", count, value))
        if self.pairs is None:  # another file may have the same name and number of pairs
            data = digest(vars(everything))
            rows = [{**scored, "data": data} for scored in rows]
        return Result(rows, {"similarity": similarity, "gold": gold})


def merged(subsets: dict[str, Pairs]) -> Pairs:
    """The pairs of all subsets, concatenated."""
    first, *others = subsets.values()
    return sum(others, start=first)


def similarities(encode: Encoder, pairs: Pairs) -> np.ndarray:
    """Cosine of every pair, (N,)."""
    vectors = encode(pairs.left + pairs.right)
    return pair_cosines(vectors[: len(pairs.left)], vectors[len(pairs.left) :])


def _year(name: str, pairs: int, subsets: str) -> StsTask:
    def read(data_dir: Path) -> dict[str, Pairs]:
        folder = data_dir / DOWNSTREAM / "STS" / f"{name}-en-test"
        return {subset: read_sts_year(folder, subset) for subset in subsets.split()}

    return StsTask(name, "test", read, pairs)


def read_stsb(split: str, data_dir: Path) -> dict[str, Pairs]:
    """STS-B's `train`, `dev` or `test`, as one subset."""
    path = data_dir / DOWNSTREAM / "STS" / "STSBenchmark" / f"sts-{split}.csv"
    return {WHOLE: read_columns(path, (4, 5, 6))}


def read_sick(file: str, data_dir: Path) -> dict[str, Pairs]:
    """A file of SICK, as one subset."""
    names = ("relatedness_score", "sentence_A", "sentence_B")
    return {WHOLE: read_columns(data_dir / DOWNSTREAM / "SICK" / file, names)}


# Subsets and numbers of pairs: the SemEval releases as SentEval reads them (STS13 without SMT).
STS_TEST = (
    _year("STS12", 3108, "MSRpar MSRvid SMTeuroparl surprise.OnWN surprise.SMTnews"),
    _year("STS13", 1500, "FNWN headlines OnWN"),
    _year("STS14", 3750, "deft-forum deft-news headlines images OnWN tweet-news"),
    _year("STS15", 3000, "answers-forums answers-students belief headlines images"),
    _year("STS16", 1186, "answer-answer headlines plagiarism postediting question-question"),
    StsTask("STS-B", "test", partial(read_stsb, "test"), 1379),
    StsTask("SICK-R", "test", partial(read_sick, "SICK_test_annotated.txt"), 4927),
)
STS_DEV = (
    StsTask("STS-B", "dev", partial(read_stsb, "dev"), 1500),
    StsTask("SICK-R", "dev", partial(read_sick, "SICK_trial.txt"), 500),
)


def tasks(split: str) -> tuple[StsTask, ...]:
    """The seven test sets, or the two dev sets."""
    return STS_DEV if split == "dev" else STS_TEST


def own_pairs(path: str | PathLike) -> StsTask:
    """A user's own file: tab-separated, header `sentence1 sentence2 score`, scores from 0 to 5."""
    columns = "score", "sentence1", "sentence2"
    pairs = Path(path)
    return StsTask(pairs.stem, "file", lambda _: {WHOLE: read_columns(pairs, columns)}, None)
