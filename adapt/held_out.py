"""Documents held out as a search task: pseudo-queries whose answers are known without labels.

A query is the title of a document and its answer the body; where there is no title, a sentence is taken out of the
document and asks for the rest. The task is written in BEIR's format, half of its queries to choose a model
(`qrels/dev.tsv`) and half to judge it (`qrels/test.tsv`). Training documents stand beside the answers.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.errors import BadInput
from common.words import UNSPACED, word_places
from data.draws import permutation

SHARE, MOST = 0.2, 400  # of the documents that are held out
FEWEST = 20  # queries; fewer could not tell two models apart
BESIDE = 250  # training documents among which an answer is looked for
COPY = 0.5  # a document that holds this share of another's shingles is its near-copy
COMMON = 0.05  # a shingle in a larger share of the documents, and in more than `MANY`, is boilerplate, such as a footer
MANY, LOOKED_AT = 10, 2000  # documents
_SHINGLE = 8  # words, or characters of scripts without spaces
_UNIT = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
# The full-width stop, exclamation and question mark need no space behind them, but a closing bracket belongs to them.
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])(?![\u300d\u300f\uff09]|$)\s*")
_QUERY_WORDS, _REST_WORDS = 4, 8  # the least of a pseudo-query and of what is left


class Document(NamedTuple):
    """A text with or without a title."""

    title: str
    body: str

    @property
    def text(self) -> str:
        return f"{self.title} {self.body}".strip()


@dataclass(frozen=True)
class Split:
    """Documents to train on, and held-out ones as (query, answer)."""

    training: list[Document]
    queries: list[tuple[str, str]]
    copies: int  # of held-out documents; neither trained on nor asked for


def split(documents: Sequence[Document], seed: int) -> Split:
    """Hold some documents out; their near-copies are left out of the training text.

    Args:
        documents: all of them.
        seed: decides which are held out, and the sentences that become queries.

    Raises:
        BadInput: fewer than `FEWEST` of them make a query.
    """
    order = permutation(seed, 0, len(documents), "held out").tolist()
    wanted = min(MOST, int(SHARE * len(documents)))
    rng = np.random.default_rng([seed, len(documents)])
    held: dict[int, tuple[str, str]] = {}
    known = _Shingles(documents[index].text for index in order[:LOOKED_AT])
    titles = Counter(document.title.lower() for document in documents)
    for index in order:
        if len(held) == wanted:
            break
        shared = titles[documents[index].title.lower()] > 1  # such a title asks for no document of its own
        pair = pseudo_query(Document("", documents[index].text) if shared else documents[index], rng)
        if pair is not None and not known.has_copy_of(documents[index].text):
            held[index] = pair
            known.add(documents[index].text)
    if len(held) < FEWEST:
        raise BadInput(
            f"{len(held)} of {len(documents)} documents can be held out as pseudo-queries, at least {FEWEST} are "
            f"needed: give more documents, or longer ones (a title, or {_QUERY_WORDS + _REST_WORDS} words)"
        )
    others = [document for index, document in enumerate(documents) if index not in held]
    training = [document for document in others if not known.has_copy_of(document.text)]
    return Split(training, list(held.values()), len(others) - len(training))


def pseudo_query(document: Document, rng: np.random.Generator) -> tuple[str, str] | None:
    """(query, answer) from one document; None for one that is too short."""
    if document.title and len(word_places(document.body)) >= _REST_WORDS:
        return document.title, document.body
    text = document.text
    sentences = list(pairwise([0, *(match.end() for match in _SENTENCE.finditer(text)), len(text)]))
    choices = [i for i, (start, end) in enumerate(sentences) if len(word_places(text[start:end])) >= _QUERY_WORDS]
    if len(sentences) < 2 or not choices:
        return _cut_out(text, rng)
    query, rest = _taken_out(text, *sentences[int(rng.choice(choices))])
    return (query, rest) if len(word_places(rest)) >= _REST_WORDS else None


def _cut_out(text: str, rng: np.random.Generator) -> tuple[str, str] | None:
    """A third of a text without sentence ends, at most twelve words of it, and the rest."""
    words = word_places(text)
    size = min(12, len(words) // 3)
    if size < _QUERY_WORDS or len(words) - size < _REST_WORDS:
        return None
    first = int(rng.integers(len(words) - size + 1))
    return _taken_out(text, words[first], [*words, len(text)][first + size])


def _taken_out(text: str, start: int, end: int) -> tuple[str, str]:
    return text[start:end].strip(), (text[:start] + text[end:]).strip()


class _Shingles:
    """Texts by their runs of eight words, to find near-copies; boilerplate counts only in texts that are nothing else.

    Args:
        sample: texts that show what is boilerplate.
    """

    def __init__(self, sample: Iterable[str]) -> None:
        found = [_shingles(text) for text in sample]
        counts, most = Counter(chain.from_iterable(found)), max(MANY, COMMON * len(found))
        self._boilerplate = {shingle for shingle, count in counts.items() if count > most}
        self._owners: dict[int, list[int]] = {}
        self._sizes: list[int] = []

    def add(self, text: str) -> None:
        shingles = self._of(text)
        for shingle in shingles:
            self._owners.setdefault(shingle, []).append(len(self._sizes))
        self._sizes.append(len(shingles))

    def has_copy_of(self, text: str) -> bool:
        """Whether one of the texts shares `COPY` of its shingles, or of this text's."""
        shingles = self._of(text)
        shared = Counter(owner for shingle in shingles for owner in self._owners.get(shingle, ()))
        return any(count >= COPY * min(len(shingles), self._sizes[owner]) for owner, count in shared.items())

    def _of(self, text: str) -> set[int]:
        shingles = _shingles(text)
        return shingles - self._boilerplate or shingles


def _shingles(text: str) -> set[int]:
    units = _UNIT.findall(text.lower())
    return {hash(tuple(units[i : i + _SHINGLE])) for i in range(max(1, len(units) - _SHINGLE + 1))}


def write_task(folder: Path, found: Split, seed: int) -> None:
    """The search task as a folder in BEIR's format: `corpus.jsonl`, `queries.jsonl`, `qrels/{dev,test}.tsv`."""
    beside = permutation(seed, 0, len(found.training), "beside")[:BESIDE] if found.training else []
    texts = [answer for _, answer in found.queries] + [
        found.training[i].body or found.training[i].title for i in beside
    ]
    (folder / "qrels").mkdir(parents=True)
    _write(folder / "corpus.jsonl", ({"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(texts)))
    queries = [query for query, _ in found.queries]
    _write(folder / "queries.jsonl", ({"_id": f"q{i}", "text": text} for i, text in enumerate(queries)))
    for part, name in enumerate(("dev", "test")):
        lines = [f"q{i}\td{i}\t1" for i in range(part, len(queries), 2)]
        content = "\n".join(["query-id\tcorpus-id\tscore", *lines, ""])
        (folder / f"qrels/{name}.tsv").write_text(content, encoding="utf-8")


def _write(path: Path, records: Iterator[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
