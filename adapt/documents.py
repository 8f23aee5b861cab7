"""Documents, and held-out ones as a search task whose answers are known without labels.

Every held-out document gives one query, see `adapt.pseudo`. The task is written in BEIR's format:
half of the queries select a model in training (`qrels/dev.tsv`), the other half do not
(`qrels/test.tsv`). The other documents, on which a model may be trained, are searched too.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np

from adapt.pseudo import KINDS, PseudoQueries
from common.errors import BadInput
from data.draws import permutation
from eval.retrieval.beir_files import write_set
from eval.retrieval.lexical import MARKS, UNSPACED, normal, word_places
from search import documents as files

logger = logging.getLogger(__name__)
SHARE, MOST = 1 / 3, 600  # held-out documents: share and maximum
FEWEST = 20  # queries; fewer cannot distinguish two searches
SEARCHED = 10_000  # documents at most, held-out ones included
PASSAGE = 400  # words; a longer document is cut into passages
COPY = 0.5  # a document with this share of another's shingles is a near-copy
# a shingle in a larger share of the documents, and in more than `MANY`, is boilerplate (a footer)
COMMON = 0.05
MANY, SAMPLED = 10, 2000  # documents
_SHINGLE = 8  # words, or characters of scripts without spaces
_UNIT = re.compile(rf"[{UNSPACED}]|(?:[^\W{UNSPACED}]+|{MARKS})+")


class Passage(NamedTuple):
    """A text; `title` may be empty."""

    title: str
    body: str

    @property
    def text(self) -> str:
        return f"{self.title} {self.body}".strip()


def read_documents(
    paths: Iterable[Path], text_column: str | None = None, title_column: str | None = None
) -> list[Passage]:
    """The documents that `python -m search build` reads, in passages; see `search.documents`."""
    found: list[Passage] = []
    for document in files.read_documents(paths, text_column, title_column):
        found += passages(document.title, document.text)
    return found


def passages(title: str, text: str) -> list[Passage]:
    """A document in equal pieces of at most `PASSAGE` words.

    The first one has the title, if the text begins with it.
    """
    body = " ".join(text.split())
    without_marks = body.lstrip("# ")
    if title and without_marks.startswith(title):
        body = without_marks.removeprefix(title).strip()
    else:
        title = ""
    words = word_places(body)
    count = max(1, ceil(len(words) / PASSAGE))
    starts = [words[len(words) * number // count] for number in range(1, count)]
    pieces = []
    for start, end in pairwise([0, *starts, len(body)]):
        pieces.append(Passage("" if pieces else title, body[start:end].strip()))
    return pieces


@dataclass(frozen=True)
class Split:
    """Documents to train on, and held-out ones as (query, answer)."""

    training: list[Passage]
    queries: list[tuple[str, str]]
    copies: int  # dropped near-copies of held-out documents


def split(documents: Sequence[Passage], seed: int, language: str = "english") -> Split:
    """Hold out some documents; drop their near-copies from the training text.

    Args:
        documents: all documents.
        seed: determines the held-out documents and their queries.
        language: of the words, see `eval.retrieval.lexical`.

    Raises:
        BadInput: fewer than `FEWEST` documents yield a query.
    """
    wanted = min(MOST, int(SHARE * len(documents)))
    order = permutation(seed, 0, len(documents), "held out").tolist()
    held: dict[int, tuple[str, str]] = {}
    copies = 0
    shingles = _Shingles(documents[index].text for index in order[:SAMPLED])
    queries = PseudoQueries([documents[index].text for index in order[:SEARCHED]], language)
    for index in order:
        if len(held) == wanted:
            break
        document, pair = documents[index], None
        rng = np.random.default_rng([seed, index])
        for kind in rng.permutation(KINDS).tolist():
            pair = pair or queries.make(kind, *document, rng)
        if pair and shingles.has_copy_of(document.text):
            copies += 1
        elif pair:
            held[index] = pair
            shingles.add(document.text)
    if len(held) < FEWEST:
        raise BadInput(
            f"only {len(held)} of {len(documents)} documents can be held out as pseudo-queries "
            f"(a third at most; {copies} are near-copies of others); {FEWEST} are needed: give "
            "more or longer documents"
        )
    rest = [document for index, document in enumerate(documents) if index not in held]
    training = [document for document in rest if not shingles.has_copy_of(document.text)]
    return Split(training, list(held.values()), len(rest) - len(training))


def with_unique_titles(documents: Sequence[Passage]) -> list[Passage]:
    """The documents; a title that others share is part of the body."""
    counts = Counter(document.title.lower() for document in documents)
    unique = []
    for document in documents:
        shared = counts[document.title.lower()] > 1
        unique.append(Passage("", document.text) if shared else document)
    return unique


class _Shingles:
    """Finds near-copies of texts by their runs of eight words.

    Boilerplate does not count, unless a text is nothing else.

    Args:
        sample: texts from which to learn the boilerplate.
    """

    def __init__(self, sample: Iterable[str]) -> None:
        per_text = [_shingles(text) for text in sample]
        counts, limit = Counter(chain.from_iterable(per_text)), max(MANY, COMMON * len(per_text))
        self._boilerplate = {shingle for shingle, count in counts.items() if count > limit}
        self._owners: dict[int, list[int]] = {}
        self._sizes: list[int] = []

    def add(self, text: str) -> None:
        shingles = self._of(text)
        for shingle in shingles:
            self._owners.setdefault(shingle, []).append(len(self._sizes))
        self._sizes.append(len(shingles))

    def has_copy_of(self, text: str) -> bool:
        """Whether an added text shares `COPY` of its own or of this text's shingles."""
        shingles = self._of(text)
        shared: Counter[int] = Counter()
        for shingle in shingles:
            shared.update(self._owners.get(shingle, ()))
        for owner, count in shared.items():
            if count >= COPY * min(len(shingles), self._sizes[owner]):
                return True
        return False

    def _of(self, text: str) -> set[int]:
        shingles = _shingles(text)
        return shingles - self._boilerplate or shingles


def _shingles(text: str) -> set[int]:
    units = _UNIT.findall(normal(text).casefold())
    return {hash(tuple(units[i : i + _SHINGLE])) for i in range(max(1, len(units) - _SHINGLE + 1))}


def write_task(folder: Path, parts: Split, seed: int) -> None:
    """Write corpus.jsonl, queries.jsonl and qrels/{dev,test}.tsv, BEIR's format."""
    most = SEARCHED - len(parts.queries)
    chosen = permutation(seed, 0, len(parts.training), "beside")[:most] if parts.training else []
    texts = [answer for _, answer in parts.queries] + [parts.training[i].text for i in chosen]
    corpus = ({"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(texts))
    queries = ({"_id": f"q{i}", "text": query} for i, (query, _) in enumerate(parts.queries))
    judged = [(f"q{i}", f"d{i}") for i in range(len(parts.queries))]
    write_set(folder, corpus, queries, dev=judged[::2], test=judged[1::2])
