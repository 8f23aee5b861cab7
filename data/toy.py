"""A toy corpus with graded sentence pairs, generated from a grammar: nothing comes from outside.

`python -m data.toy --output DIR` writes `sentences.txt` (distinct training sentences), `running.txt` (lines of
coherent training sentences), `dev.tsv` and `test.tsv` (graded pairs).

Every frame belongs to exactly one of train, dev and test by a hash of its key (`split_of`). No wording of a
dev or test frame is therefore in the training text, whatever the numbers of sentences and pairs asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

from common.errors import BadInput, run_command, unwritable
from common.flags import Parser
from data.toy_grammar import WEIGHTS, change, draw_frame, draw_wording, say, split_of
from data.toy_pairs import KINDS, Pair, draw_pair

LOG = logging.getLogger(__name__)
T = TypeVar("T")
CHANGES = (0, 1, 1, 2)
STORY = 5  # sentences on a line of running text
PATIENCE = 2000  # draws in a row that bring nothing new: the grammar is exhausted


class Toy(NamedTuple):
    """The corpus: distinct training sentences, graded pairs, and lines of running text."""

    sentences: list[str]
    dev: list[Pair]
    test: list[Pair]
    running_text: list[str]


def draw_sentence(rng: Random, seed: int) -> str | None:
    """Draw a training sentence; None where its frame is held out."""
    frame = draw_frame(rng)
    return say(frame, draw_wording(rng)) if split_of(frame, seed) == "train" else None


def draw_story(rng: Random, seed: int) -> str | None:
    """Draw a line of training sentences, each telling the one before again with at most two slots changed.

    A story names the same things in other words, which is what lets a masked language model learn synonyms.
    """
    frame = draw_frame(rng)
    if split_of(frame, seed) != "train":
        return None
    story = [say(frame, draw_wording(rng))]
    while len(story) < STORY:
        following = change(frame, tuple(WEIGHTS), rng.choice(CHANGES), rng)
        if split_of(following, seed) == "train":
            frame = following
            story.append(say(frame, draw_wording(rng)))
    return " . ".join(story)


def distinct(draw: Callable[[], T | None], count: int) -> list[T]:
    """Draw until `count` different things have come.

    Raises:
        BadInput: the grammar has no more of them.
    """
    found: dict[T, None] = {}  # keeps the order, unlike a set
    misses = 0
    while len(found) < count:
        thing = draw()
        misses = misses + 1 if thing is None or thing in found else 0
        if misses > PATIENCE:
            raise BadInput(f"the toy grammar yields no more than {len(found)} of the {count} asked for: ask for fewer")
        if thing is not None:
            found[thing] = None
    return list(found)


def _pairs(part: str, seed: int, count: int) -> list[Pair]:
    """The pairs of one part: equally many of each kind, shuffled."""
    rng = Random(f"{seed}/{part}")
    pairs = []
    for number, kind in enumerate(KINDS):
        share = len(range(number, count, len(KINDS)))
        pairs += distinct(lambda kind=kind: draw_pair(rng, kind, part, seed), share)
    rng.shuffle(pairs)
    return pairs


def generate(seed: int, sentences: int, pairs: int) -> Toy:
    """Generate the corpus; each of its parts depends on the seed and its own size only.

    Args:
        seed: seeds the drawing and the split of the frames.
        sentences: the number of training sentences, and about that of the sentences of the running text.
        pairs: the number of pairs of dev, and of test.

    Raises:
        BadInput: a number is too small, or larger than the grammar allows.
    """
    if sentences < STORY or pairs < len(KINDS):
        raise BadInput(f"--sentences must be at least {STORY} and --pairs at least {len(KINDS)}")
    rng, story_rng = Random(f"{seed}/sentences"), Random(f"{seed}/running")
    return Toy(
        sentences=distinct(lambda: draw_sentence(rng, seed), sentences),
        dev=_pairs("dev", seed, pairs),
        test=_pairs("test", seed, pairs),
        running_text=distinct(lambda: draw_story(story_rng, seed), sentences // STORY),
    )


def write(toy: Toy, folder: Path) -> None:
    """Write the four files into `folder`, which is made where it is missing.

    Raises:
        BadInput, StorageError: the folder, or the disk, cannot be written.
    """
    files = {"sentences.txt": toy.sentences, "running.txt": toy.running_text}
    for name, pairs in (("dev.tsv", toy.dev), ("test.tsv", toy.test)):
        rows = [f"{pair.sentence1}\t{pair.sentence2}\t{pair.score:.1f}" for pair in pairs]
        files[name] = ["\t".join(Pair._fields), *rows]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, lines in files.items():
            (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    except OSError as error:
        raise unwritable(error, f"cannot write the toy corpus: {error}") from error


def main(argv: list[str] | None = None) -> None:
    """The command: generate and write."""
    parser = Parser(description="Write a toy corpus with graded sentence pairs.")
    parser.add_argument("--output", type=Path, required=True, help="folder to write into")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sentences", type=int, default=20000, help="number of training sentences")
    parser.add_argument("--pairs", type=int, default=1000, help="number of pairs of dev, and of test")
    args = parser.parse_args(argv)
    toy = generate(args.seed, args.sentences, args.pairs)
    write(toy, args.output)
    LOG.info("%s: %d sentences, %d pairs each of dev and test", args.output, len(toy.sentences), len(toy.dev))


if __name__ == "__main__":
    run_command(main)
