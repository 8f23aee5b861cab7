"""The quickstart's text: sentences, running text and graded pairs from a small grammar.

A frame says who does what to what and where, and perhaps with what, when, how, and what the object
is like; a sentence words it at random. So the gold score of two sentences depends only on their
frames. A hash puts each frame into train, dev or test, whatever its wording.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from common.files import read_yaml, writing
from examples import own_folder

Frame = dict[str, str]  # the topic, and the name of the concept in each slot that is filled
LEXICON = read_yaml(Path(__file__).with_name("lexicon.yaml"), strings=True)
TOPICS, TEMPLATES = list(LEXICON["topics"]), LEXICON["templates"].splitlines()
ARTICLES, LINKS, OPENERS = (LEXICON[name].split(", ") for name in ("articles", "links", "openers"))
CORE, OPTIONAL = ("agent", "action", "object", "place"), ("tool", "time", "manner", "quality")
WEIGHTS = dict(zip((*CORE, *OPTIONAL), (3, 3, 3, 2, 1, 1, 1, 1), strict=True))
CONCEPTS: dict[tuple[str, str], dict[str, list[str]]] = {}  # topic, slot -> name -> synonyms
for topic, slots in LEXICON["topics"].items():
    for slot, line in (slots | LEXICON["shared"]).items():
        concepts = [synonyms.split() for synonyms in line.split(", ")]
        CONCEPTS[topic, slot] = {words[0].rpartition(":")[2]: words for words in concepts}
# Kinds of pairs, in turn: which slots differ and how many (None: another topic), and the shares of
# second sentences that avoid and that repeat the wording of the first, so that overlap misleads.
KINDS: list[tuple] = [((), 0, 0.5, 0), (OPTIONAL, 1, 0.5, 0), (("object", "place"), 1, 0.5, 0)]
KINDS += [(("agent", "object"), 2, 0, 0.2), (tuple(WEIGHTS), 8, 0, 0.2), *[(None, 0, 0, 0.2)] * 4]


def generate(seed: int, sentences: int, pairs: int) -> dict[str, list]:
    """Sentences, `running` text with five of them a line, pairs for dev and test.

    Each part depends only on the seed and its own size.
    """
    single, running = Random(f"{seed}/sentences"), Random(f"{seed}/running")
    text: dict[str, list] = {"sentences": distinct(lambda: story(single, seed, 1), sentences)}
    text["running"] = distinct(lambda: story(running, seed, 5), sentences // 5)
    for part in ("dev", "test"):
        rng, text[part] = Random(f"{seed}/{part}"), []
        for number, kind in enumerate(KINDS):
            share = len(range(number, pairs, len(KINDS)))
            text[part] += distinct(lambda: draw_pair(rng, kind, part, seed), share)  # noqa: B023
        rng.shuffle(text[part])
    return text


def distinct(draw: Callable, count: int) -> list:
    """The first `count` different results that are not None."""
    drawn: dict = {}
    while len(drawn) < count:
        drawn[draw()] = None
        drawn.pop(None, None)
    return list(drawn)


def split_of(frame: Frame, seed: int) -> str:
    """By its hash: a tenth of the frames each for dev and test, the rest for train."""
    name = "|".join(frame.get(slot, "-") for slot in ("topic", *WEIGHTS))
    digest = hashlib.sha256(f"{seed}|{name}".encode()).digest()
    return {0: "dev", 1: "test"}.get(int.from_bytes(digest[:8], "big") % 10, "train")


def gold(a: Frame, b: Frame) -> float:
    """0 to 5: a fifth for the topic, the rest for the squared share of the weight that is equal."""
    filled = [slot for slot in WEIGHTS if slot in a or slot in b]
    equal = sum(WEIGHTS[slot] for slot in filled if a.get(slot) == b.get(slot))
    share = equal / sum(WEIGHTS[slot] for slot in filled)
    return round(5 * (0.2 * (a["topic"] == b["topic"]) + 0.8 * share**2), 1)


def draw_frame(rng: Random) -> Frame:
    """A topic and one of its four scripts, whose concept half of the slots have for certain."""
    number, script = rng.randrange(len(TOPICS)), rng.randrange(4)
    frame = {"topic": TOPICS[number]}
    for slot in (*CORE, *rng.sample(OPTIONAL, rng.choice((0, 1, 1, 2, 2)))):
        names = list(CONCEPTS[frame["topic"], slot])
        habit = names[(4 * number + script) % len(names)]
        frame[slot] = habit if rng.random() < 0.5 else rng.choice(names)
    return frame


def change(frame: Frame, slots: Sequence[str], number: int, rng: Random) -> Frame:
    """The frame with other concepts of its topic in up to `number` of these slots."""
    filled, changed = [slot for slot in slots if slot in frame], dict(frame)
    for slot in rng.sample(filled, min(number, len(filled))):
        names = CONCEPTS[frame["topic"], slot]
        changed[slot] = rng.choice([name for name in names if name != frame[slot]])
    return changed


def draw_wording(rng: Random) -> tuple:
    """Template, opener, articles, link and picks of synonyms (of 12, which all numbers divide)."""
    template, opener = rng.choice(TEMPLATES), rng.choice(OPENERS) if rng.random() < 0.3 else ""
    articles = [rng.choice(ARTICLES) for _ in range(4)]
    return template, opener, articles, rng.choice(LINKS), [rng.randrange(12) for _ in WEIGHTS]


def say(frame: Frame, wording: tuple) -> str:
    """The sentence, without its opener if that would make more than 16 words."""
    template, opener, (agent, thing, place, tool), link, picks = wording
    words = dict.fromkeys(WEIGHTS, "")
    for slot, pick in zip(WEIGHTS, picks, strict=True):
        if slot in frame:
            synonyms = CONCEPTS[frame["topic"], slot][frame[slot]]
            words[slot] = synonyms[pick % len(synonyms)].replace(":", " ")
    words["agent"] = f"{agent} {words['agent']}"
    words["object"] = f"{thing} {words['quality']} {words['object']}"
    words["place"] = f" {place} ".join(words["place"].split())
    words["tool"] = f"{link} {tool} {words['tool']}" if "tool" in frame else ""
    said, opening = template.format(**words).split(), opener.split()
    return " ".join(said if len(opening) + len(said) > 16 else opening + said)


def story(rng: Random, seed: int, length: int) -> str | None:
    """Training sentences, each with up to two slots changed; None if the first is held out."""
    frame, told = draw_frame(rng), []
    if split_of(frame, seed) != "train":
        return None
    told.append(say(frame, draw_wording(rng)))
    while len(told) < length:
        following = change(frame, tuple(WEIGHTS), rng.choice((0, 1, 1, 2)), rng)
        if split_of(following, seed) == "train":
            frame = following
            told.append(say(frame, draw_wording(rng)))
    return " . ".join(told)


def draw_pair(rng: Random, kind: tuple, part: str, seed: int) -> tuple[str, str, float] | None:
    """Two sentences and their gold score; None if the draws give no such pair in this part."""
    slots, number, far, close = kind
    first = draw_frame(rng)
    for _ in range(20 if split_of(first, seed) == part else 0):
        second = draw_frame(rng) if slots is None else change(first, slots, number, rng)
        fits = second["topic"] != first["topic"] if slots is None else not slots or second != first
        if fits and split_of(second, seed) == part:
            wording, style = draw_wording(rng), rng.random()
            left, right = say(first, wording), say(second, reword(wording, style, far, close, rng))
            return (left, right, gold(first, second)) if left != right else None
    return None


def reword(wording: tuple, style: float, far: float, close: float, rng: Random) -> tuple:
    """The second wording of a pair: the first, any, or one without the words of the first."""
    if style < close:
        return wording
    fresh = draw_wording(rng)
    if style <= 1 - far:
        return fresh
    template = rng.choice([other for other in TEMPLATES if other != wording[0]])
    return template, *fresh[1:4], [pick + 1 for pick in wording[4]]


def write(text: dict[str, list], folder: Path) -> None:
    """Write sentences.txt, running.txt, dev.tsv and test.tsv; errors as in `own_folder`."""
    files = {f"{part}.txt": text[part] for part in ("sentences", "running")}
    for part in ("dev", "test"):
        rows = [f"{left}\t{right}\t{score:.1f}" for left, right, score in text[part]]
        files[f"{part}.tsv"] = ["sentence1\tsentence2\tscore", *rows]
    own_folder(folder, files)
    for name, lines in files.items():
        with writing(folder / name) as path:
            path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
