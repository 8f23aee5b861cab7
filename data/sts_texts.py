"""The sentences of the seven STS sets, all splits, without their scores: ConSERT's training text.

ConSERT (arXiv 2105.11741) section 4.1 mixes "the unlabeled texts from these datasets"; Table 1 counts 89,192. These are
all pairs in SentEval's files, with the unscored ones of STS15 and STS16 and the test splits, so a model trained on them
has seen its test texts.
"""

from collections.abc import Iterator
from pathlib import Path

from common.files import writing
from data.lines import numbered_lines

TARGET = "text/sts_unlabelled.txt"
_ROOT = Path("senteval") / "downstream"
# Table 1, "Number of Unlabeled Texts".
PUBLISHED = {
    "STS12": 6216,
    "STS13": 3000,
    "STS14": 7500,
    "STS15": 17000,
    "STS16": 18366,
    "STS-B": 17256,
    "SICK-R": 19854,
}


def texts(data_dir: Path, name: str) -> list[str]:
    """Return both sentences of every pair of one set, in file order, without empty ones.

    Raises:
        BadInput: a file is missing.
    """
    return [" ".join(text.split()) for row in _rows(data_dir / _ROOT, name) for text in row if text.strip()]


def _rows(root: Path, name: str) -> Iterator[tuple[str, str]]:
    if name == "STS-B":
        for split in ("train", "dev", "test"):
            yield from _columns(root / "STS" / "STSBenchmark" / f"sts-{split}.csv", 5, 6, 0)
    elif name == "SICK-R":
        for file in ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"):
            yield from _columns(root / "SICK" / file, 1, 2, 1)
    else:
        folder = root / "STS" / f"{name}-en-test"
        for path in sorted(folder.glob("STS.input.*.txt")):
            yield from _columns(path, 0, 1, 0)


def _columns(path: Path, left: int, right: int, skipped: int) -> Iterator[tuple[str, str]]:
    for number, line in numbered_lines(path):
        cells = line.split("\t")
        if number > skipped:
            yield cells[left], cells[right]


def write(data_dir: Path) -> Iterator[str]:
    """Write the text, one sentence per line; yield a message for each set whose count differs from the paper's."""
    target = data_dir / TARGET
    total = 0
    with writing(target) as part, part.open("w", encoding="utf-8", newline="\n") as stream:
        for name, published in PUBLISHED.items():
            sentences = texts(data_dir, name)
            total += len(sentences)
            stream.writelines(f"{text}\n" for text in sentences)
            if len(sentences) != published:
                yield f"{name}: {len(sentences):,} sentences, the paper counts {published:,}"
    yield f"{target}: {total:,} sentences (the paper: {sum(PUBLISHED.values()):,})"
