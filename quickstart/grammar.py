"""The grammar of the generated text: frames, their wordings, and the similarity of two frames.

A frame says who does what to what and where, and optionally with what, when, how, and what the object is like. A
sentence is one wording of a frame: a template, and a synonym for each concept. Both are drawn at random and carry no
meaning, so the gold score of two sentences depends only on their frames (`gold`). The words are in lexicon.yaml.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from common.files import read_yaml

LEXICON = read_yaml(Path(__file__).with_name("lexicon.yaml"), strings=True)
TOPICS = list(LEXICON["topics"])
ARTICLES, LINKS, OPENERS = (LEXICON[name].split(", ") for name in ("articles", "links", "openers"))
TEMPLATES = LEXICON["templates"].splitlines()
WEIGHTS = {"agent": 3, "action": 3, "object": 3, "place": 2, "tool": 1, "time": 1, "manner": 1, "quality": 1}
CORE = ("agent", "action", "object", "place")
OPTIONAL = ("tool", "time", "manner", "quality")
MAX_WORDS = 16
HABIT = 0.5  # probability that a slot has its script's concept rather than any of the topic's
PICKS = 12  # a multiple of all numbers of synonyms, so that `pick % number` is uniform


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
    return {each[0].rpartition(":")[2]: each for each in phrases}


CONCEPTS = {(topic, slot): _concepts(topic, slot) for topic in TOPICS for slot in WEIGHTS}
MEANINGS = {
    phrase.rpartition(":")[2]: ("" if slot in LEXICON["shared"] else topic, slot, name)
    for (topic, slot), concepts in CONCEPTS.items()
    for name, phrases in concepts.items()
    for phrase in phrases
}


def frame_key(frame: Frame) -> str:
    """A string that identifies a frame."""
    return "|".join(value or "-" for value in frame)


def parse(sentence: str) -> Frame:
    """Parse a sentence back to its frame."""
    values = {}
    for topic, slot, name in (MEANINGS[word] for word in sentence.split() if word in MEANINGS):
        values[slot] = name
        if topic:
            values["topic"] = topic
    return Frame(**values)


def split_of(frame: Frame, seed: int) -> str:
    """The split of a frame, by its hash: a tenth each for dev and test, the rest for train."""
    digest = hashlib.sha256(f"{seed}|{frame_key(frame)}".encode()).digest()
    return {0: "dev", 1: "test"}.get(int.from_bytes(digest[:8], "big") % 10, "train")


def gold(a: Frame, b: Frame) -> float:
    """The similarity of two frames: 5 * (0.2 * same topic + 0.8 * share ** 2), to one decimal.

    `share` is the weight of the equal slots over the weight of the slots filled in either frame (`WEIGHTS`). It is
    squared because one different slot already makes another event.
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
        habit = names[(4 * number + script) % len(names)]  # with four concepts, each script has its own
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
