"""The quickstart's text: sentences, running text and graded pairs from a small grammar.

`write` makes `sentences.txt` (distinct training sentences), `running.txt` (lines of coherent
training sentences), `dev.tsv` and `test.tsv` (graded pairs).

A frame says who does what to what and where, and optionally with what, when, how, and what the
object is like. A sentence is one wording of a frame: a template, and a synonym for each concept.
Both are drawn at random and carry no meaning, so the gold score of two sentences depends only on
their frames (`gold`). The words are in lexicon.yaml.

A hash assigns every frame to exactly one of train, dev and test (`split_of`), so no wording of a
dev or test frame is in the training text, however many sentences and pairs are drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

import numpy as np

from common.files import own_folder, read_yaml, writing

T = TypeVar("T")
LEXICON = read_yaml(Path(__file__).with_name("lexicon.yaml"), strings=True)
TOPICS = list(LEXICON["topics"])
ARTICLES, LINKS, OPENERS = (LEXICON[name].split(", ") for name in ("articles", "links", "openers"))
TEMPLATES = LEXICON["templates"].splitlines()
WEIGHTS = {
    "agent": 3,
    "action": 3,
    "object": 3,
    "place": 2,
    "tool": 1,
    "time": 1,
    "manner": 1,
    "quality": 1,
}
CORE = ("agent", "action", "object", "place")
OPTIONAL = ("tool", "time", "manner", "quality")
MAX_WORDS = 16
HABIT = 0.5  # probability that a slot has its script's concept rather than any of the topic's
PICKS = 12  # a multiple of all numbers of synonyms, so that `pick % number` is uniform
CHANGES = (0, 1, 1, 2)
STORY = 5  # sentences per line of running text


class Frame(NamedTuple):
    """The meaning of a sentence: each slot has the first word of a concept, or None if empty."""

    topic: str
    agent: str
    action: str
    object: str
    place: str
    tool: str | None = None
    time: str | None = None
    manner: str | None = None
    quality: str | None = None


class Wording(NamedTuple):
    """How a frame is worded; does not change the meaning."""

    template: str
    opener: str
    articles: tuple[str, ...]
    link: str
    picks: tuple[int, ...]


def _concepts(topic: str, slot: str) -> dict[str, tuple[str, ...]]:
    """The concepts of a slot: name -> synonyms."""
    line = LEXICON["shared"].get(slot) or LEXICON["topics"][topic][slot]
    phrases = (tuple(synonyms.split()) for synonyms in line.split(", "))
    return {words[0].rpartition(":")[2]: words for words in phrases}


CONCEPTS = {(topic, slot): _concepts(topic, slot) for topic in TOPICS for slot in WEIGHTS}


def frame_key(frame: Frame) -> str:
    """A string that identifies a frame."""
    return "|".join(value or "-" for value in frame)


def split_of(frame: Frame, seed: int) -> str:
    """The split of a frame, by its hash: a tenth each for dev and test, the rest for train."""
    digest = hashlib.sha256(f"{seed}|{frame_key(frame)}".encode()).digest()
    return {0: "dev", 1: "test"}.get(int.from_bytes(digest[:8], "big") % 10, "train")


def gold(a: Frame, b: Frame) -> float:
    """The similarity of two frames: 5 * (0.2 * same topic + 0.8 * share ** 2), to one decimal.

    `share` is the weight of the equal slots over the weight of the slots filled in either frame
    (`WEIGHTS`). It is squared because one different slot already makes another event.
    """
    filled = [slot for slot in WEIGHTS if getattr(a, slot) or getattr(b, slot)]
    equal = [slot for slot in filled if getattr(a, slot) == getattr(b, slot)]
    share = sum(WEIGHTS[slot] for slot in equal) / sum(WEIGHTS[slot] for slot in filled)
    return round(5 * (0.2 * (a.topic == b.topic) + 0.8 * share**2), 1)


def draw_frame(rng: Random) -> Frame:
    """Draw a topic and one of its scripts, then each slot: the script's habit or any concept of the slot."""
    number = rng.randrange(len(TOPICS))
    topic = TOPICS[number]
    script = rng.randrange(4)
    extra = rng.sample(OPTIONAL, rng.choice((0, 1, 1, 2, 2)))
    values = {}
    for slot in (*CORE, *extra):
        names = list(CONCEPTS[topic, slot])
        habit = names[
            (4 * number + script) % len(names)
        ]  # with four concepts, each script has its own
        values[slot] = habit if rng.random() < HABIT else rng.choice(names)
    return Frame(topic, **values)


def change(frame: Frame, slots: Sequence[str], number: int, rng: Random) -> Frame:
    """Change the concept of up to `number` filled slots among `slots`, within the topic."""
    filled = [slot for slot in slots if getattr(frame, slot)]
    chosen = rng.sample(filled, min(number, len(filled)))
    others = {s: [n for n in CONCEPTS[frame.topic, s] if n != getattr(frame, s)] for s in chosen}
    return frame._replace(**{slot: rng.choice(names) for slot, names in others.items()})


def draw_wording(rng: Random) -> Wording:
    """Draw a wording; it does not depend on the frame."""
    return Wording(
        template=rng.choice(TEMPLATES),
        opener=rng.choice(OPENERS) if rng.random() < 0.3 else "",
        articles=tuple(rng.choice(ARTICLES) for _ in range(4)),
        link=rng.choice(LINKS),
        picks=tuple(rng.randrange(PICKS) for _ in WEIGHTS),
    )


def say(frame: Frame, wording: Wording) -> str:
    """Put a frame into words; the opener is dropped if the sentence would be too long."""
    words = dict.fromkeys(WEIGHTS, "")
    for slot, pick in zip(WEIGHTS, wording.picks, strict=True):
        if name := getattr(frame, slot):
            phrases = CONCEPTS[frame.topic, slot][name]
            words[slot] = phrases[pick % len(phrases)].replace(":", " ")
    agent, thing, place, tool = wording.articles
    words["agent"] = f"{agent} {words['agent']}"
    words["object"] = f"{thing} {words['quality']} {words['object']}"
    words["place"] = f" {place} ".join(words["place"].split())
    words["tool"] = f"{wording.link} {tool} {words['tool']}" if frame.tool else ""
    sentence = wording.template.format(**words).split()
    opener = wording.opener.split()
    return " ".join(sentence if len(opener) + len(sentence) > MAX_WORDS else opener + sentence)


class Pair(NamedTuple):
    """Two sentences and their gold similarity, 0 to 5."""

    sentence1: str
    sentence2: str
    score: float


class PairType(NamedTuple):
    """A type of pair: how many of which slots differ, and how the second sentence is worded.

    `far` and `close` are the shares of second wordings that avoid and repeat the words of the
    first.
    """

    name: str
    number: int
    slots: tuple[str, ...]
    far: float
    close: float


# Drawn in turn. Similar sentences often avoid each other's words and dissimilar ones sometimes
# share their wording, so word overlap is a poor guide. Almost half of the pairs are unrelated, like
# most pairs of random sentences.
UNRELATED = PairType("another topic", 0, (), 0.0, 0.2)
PAIR_TYPES = (
    PairType("same", 0, (), 0.5, 0.0),
    PairType("one minor slot", 1, OPTIONAL, 0.5, 0.0),
    PairType("object or place", 1, ("object", "place"), 0.5, 0.0),
    PairType("agent and object", 2, ("agent", "object"), 0.0, 0.2),
    PairType("same topic only", 8, tuple(WEIGHTS), 0.0, 0.2),
    *(UNRELATED,) * 4,
)


class Generated(NamedTuple):
    """Distinct training sentences, graded pairs, and lines of running text."""

    sentences: list[str]
    dev: list[Pair]
    test: list[Pair]
    running_text: list[str]


def generate(seed: int, sentences: int, pairs: int) -> Generated:
    """Generate all text; each part depends only on the seed and its own size.

    The running text has about `sentences` sentences; dev and test have `pairs` pairs each.
    """
    rng, story_rng = Random(f"{seed}/sentences"), Random(f"{seed}/running")
    return Generated(
        sentences=_distinct(lambda: _draw_sentence(rng, seed), sentences),
        dev=_pairs("dev", seed, pairs),
        test=_pairs("test", seed, pairs),
        running_text=_distinct(lambda: _draw_story(story_rng, seed), sentences // STORY),
    )


def word_overlap(left: Sequence[str], right: Sequence[str]) -> np.ndarray:
    """A baseline: the cosine of the binary bags of words of N pairs, (N,)."""
    bags = [(set(a.split()), set(b.split())) for a, b in zip(left, right, strict=True)]
    return np.array([len(a & b) / np.sqrt(len(a) * len(b)) for a, b in bags])


def _distinct(draw: Callable[[], T | None], count: int) -> list[T]:
    """Draw until `count` different items are found."""
    drawn: dict[T, None] = {}  # keeps the order, unlike a set
    while len(drawn) < count:
        if (item := draw()) is not None:
            drawn[item] = None
    return list(drawn)


def _draw_sentence(rng: Random, seed: int) -> str | None:
    """Draw a training sentence; None if its frame is held out."""
    frame = draw_frame(rng)
    return say(frame, draw_wording(rng)) if split_of(frame, seed) == "train" else None


def _draw_story(rng: Random, seed: int) -> str | None:
    """Draw a line of training sentences; each rewords the previous one and changes at most two
    slots.

    A story repeats the same concepts in different words, so that a masked language model can learn
    synonyms.
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


def _pairs(part: str, seed: int, count: int) -> list[Pair]:
    """The pairs of one part: the same number of each type, shuffled."""
    rng = Random(f"{seed}/{part}")
    pairs = []
    for number, pair_type in enumerate(PAIR_TYPES):
        share = len(range(number, count, len(PAIR_TYPES)))
        pairs += _distinct(
            lambda pair_type=pair_type: _draw_pair(rng, pair_type, part, seed), share
        )
    rng.shuffle(pairs)
    return pairs


def _draw_pair(rng: Random, pair_type: PairType, part: str, seed: int) -> Pair | None:
    """Draw a pair of this type; None if a frame is not in this part or both sentences are equal."""
    first = draw_frame(rng)
    if split_of(first, seed) != part:
        return None
    for _ in range(20):
        second = _second_frame(first, pair_type, rng)
        if second and split_of(second, seed) == part:
            wording = draw_wording(rng)
            pair = Pair(
                say(first, wording),
                say(second, _reword(wording, pair_type, rng)),
                gold(first, second),
            )
            return pair if pair.sentence1 != pair.sentence2 else None
    return None


def _second_frame(first: Frame, pair_type: PairType, rng: Random) -> Frame | None:
    """Draw the second frame of a pair; None if it is not of this type, for example without a minor slot to change."""
    if pair_type.name == "another topic":
        second = draw_frame(rng)
        return second if second.topic != first.topic else None
    second = change(first, pair_type.slots, pair_type.number, rng)
    return second if pair_type.number == 0 or second != first else None


def _reword(first: Wording, pair_type: PairType, rng: Random) -> Wording:
    """The wording of a pair's second sentence: the same as the first, avoiding the first, or independent."""
    style = rng.random()
    if style < pair_type.close:
        return first
    fresh = draw_wording(rng)
    if style > 1 - pair_type.far:
        other = rng.choice([template for template in TEMPLATES if template != first.template])
        fresh = fresh._replace(template=other, picks=tuple(pick + 1 for pick in first.picks))
    return fresh


def write(text: Generated, folder: Path) -> None:
    """Write the four files into `folder`, which is created if missing; raises as `own_folder` and `writing`."""
    files = {"sentences.txt": text.sentences, "running.txt": text.running_text}
    for name, pairs in (("dev.tsv", text.dev), ("test.tsv", text.test)):
        rows = [f"{pair.sentence1}\t{pair.sentence2}\t{pair.score:.1f}" for pair in pairs]
        files[name] = ["\t".join(Pair._fields), *rows]
    own_folder(folder, files)
    for name, lines in files.items():
        with writing(folder / name) as part:
            part.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
