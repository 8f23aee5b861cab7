"""Word content (Conneau et al. 2018, arXiv 1805.01070): which word does a vector's sentence hold?

Each sentence holds exactly one of the words, which are the classes of a logistic regression over
the frozen vectors. The paper has 1,000 words ranked 2,000 to 3,000 by frequency; here they are
fewer, from another text, so accuracies do not compare with published ones.
"""

import re
from collections import Counter
from pathlib import Path

from common.errors import BadInput
from eval.text_files import read_lines, tidy
from eval.transfer.tasks import Examples, TransferTask

TEXT = Path("text") / "wiki_sentences.txt"  # below --data_dir
FIRST_RANK, WORDS = 2000, 200
SPLITS = {"train": 40, "dev": 10, "test": 20}  # sentences of each word
LONGEST = 20  # words of a sentence, so that no encoder cuts it


def read(data_dir: Path) -> dict[str, Examples]:
    """The first sentences of the text that hold one of the words, by split."""
    path = data_dir / TEXT
    wanted = "put sentences there, one a line (400,000 suffice)"
    try:
        lines = list(dict.fromkeys(tidy(line) for line in read_lines(path)))
    except BadInput as error:
        raise BadInput(f"{error}; {wanted}") from error
    sets = [frozenset(re.findall(r"[a-z]+", line.lower())) for line in lines]
    counts = Counter(word for words in sets for word in words)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    labels = {word: label for label, word in enumerate(ranked[FIRST_RANK:][:WORDS])}
    found: list[list[str]] = [[] for _ in range(WORDS)]
    for line, words in zip(lines, sets, strict=True):
        held = [word for word in words if word in labels]
        if len(held) == 1 and len(line.split()) <= LONGEST:
            found[labels[held[0]]].append(line)
    needed = sum(SPLITS.values())
    if min(map(len, found)) < needed:
        raise BadInput(f"{path}: has words with fewer than {needed} sentences; {wanted}")
    splits, start = {}, 0
    for split, size in SPLITS.items():
        rows = [((text,), label) for label in range(WORDS) for text in found[label][start:][:size]]
        splits[split] = Examples([texts for texts, _ in rows], [label for _, label in rows])
        start += size
    return splits


def tasks(device: str = "cpu") -> tuple[TransferTask, ...]:
    """The one task, with the papers' settings: the faster ones scatter from fit to fit."""
    sizes = tuple(size * WORDS for size in SPLITS.values())
    return (TransferTask("word content", read, sizes, "test", device, "word accuracy"),)
