"""Documents, and held-out ones as a search task: pseudo-queries whose answers are known without labels.

The query is a document's title and the answer its body; without a title, the query is a sentence cut from the document
and the answer is the rest. The task is written in BEIR's format: half of the queries select a model (`qrels/dev.tsv`),
the other half judge it (`qrels/test.tsv`). Training documents serve as distractors.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from common.errors import BadInput
from data.draws import permutation
from data.lines import LONGEST_LINE
from data.source import Source
from data.text import column_names, read_text
from eval.retrieval.beir_files import write_set
from eval.words import UNSPACED, word_places

logger = logging.getLogger(__name__)
SHARE, MOST = 0.2, 400  # held-out documents: share and maximum
FEWEST = 20  # queries; fewer cannot distinguish two models
DISTRACTORS = 250  # training documents to search in addition to the answers
COPY = 0.5  # a document with this share of another's shingles is a near-copy
COMMON = 0.05  # a shingle in a larger share of the documents, and in more than `MANY`, is boilerplate, such as a footer
MANY, SAMPLED = 10, 2000  # documents
_SHINGLE = 8  # words, or characters of scripts without spaces
_UNIT = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
# Full-width stops, exclamation and question marks need no following space; a closing bracket belongs to the sentence.
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])(?![\u300d\u300f\uff09]|$)\s*")
_FEW_WORDS = 20  # a typical line of a page that was not made one line
_QUERY_WORDS, _REST_WORDS = 4, 8  # minimum words of a pseudo-query and of its answer


class Document(NamedTuple):
    """A text; `title` may be empty."""

    title: str
    body: str

    @property
    def text(self) -> str:
        return f"{self.title} {self.body}".strip()


def read_documents(
    files: Sequence[Path], cache_dir: str, text_column: str | None = None, title_column: str | None = None
) -> list[Document]:
    """All documents, in the order of the files.

    Args:
        files: of any supported format, recognised by name.
        cache_dir: folder for the converted texts.
        text_column: text column of tables, default `text`; if given, text files must have a header.
        title_column: title column of tables, default `title` where there is one.

    Raises:
        BadInput: a file cannot be read; names file and line.
    """
    documents = []
    for path in files:
        source = Source((path,), names=(text_column,) if text_column else ())
        title, body = title_column or "title", text_column or "text"
        names = column_names(source)
        if title_column and not names:
            raise BadInput(f"--title_column {title_column}: {path} has no header; give --text_column too if it has one")
        if title_column or (title in names and title != body):  # `read_text` refuses a missing one
            source = replace(source, names=(title, body), titled=True)
        text = read_text(source, cache_dir).rows
        columns = ([" ".join(cell.replace("\0", " ").split()) for cell in text[name]]
                   for name in ("0", "1")[: source.width])  # fmt: skip
        read = [*(map(Document, *columns) if source.titled else (Document("", body) for body in next(columns)))]
        if too_long := [document for document in read if len(document.text.encode()) > LONGEST_LINE]:
            raise BadInput(f"{path}: a document is longer than {LONGEST_LINE:,} bytes ({too_long[0].text[:40]} ...); "
                           "split it")  # fmt: skip
        documents += read
    found = len(documents)
    documents = [document for document in documents if _UNIT.search(document.text)]
    if dropped := found - len(documents):
        logger.warning("%d of %d documents contain no word and are left out", dropped, found)
    sample = [len(word_places(document.text)) for document in documents[:SAMPLED]]
    if len(files) > 1 and median(sample) < _FEW_WORDS:
        logger.warning("%d documents in %d files, half of them with fewer than %d words: is each line a document?",
                       len(documents), len(files), _FEW_WORDS)  # fmt: skip
    return documents


@dataclass(frozen=True)
class Split:
    """Documents to train on, and held-out ones as (query, answer)."""

    training: list[Document]
    queries: list[tuple[str, str]]
    copies: int  # dropped near-copies of held-out documents


def split(documents: Sequence[Document], seed: int) -> Split:
    """Hold out some documents; drop their near-copies from the training text.

    Args:
        documents: all documents.
        seed: determines the held-out documents, and the sentences that become queries.

    Raises:
        BadInput: fewer than `FEWEST` documents yield a query.
    """
    wanted = min(MOST, int(SHARE * len(documents)))
    if wanted < FEWEST:
        raise BadInput(f"{len(documents)} documents: give at least {int(FEWEST / SHARE)}; a share of {SHARE} is held "
                       f"out as pseudo-queries, and {FEWEST} of these are needed")  # fmt: skip
    order = permutation(seed, 0, len(documents), "held out").tolist()
    rng = np.random.default_rng([seed, len(documents)])
    held: dict[int, tuple[str, str]] = {}
    shingles = _Shingles(documents[index].text for index in order[:SAMPLED])
    titled = with_unique_titles(documents)
    for index in order:
        if len(held) == wanted:
            break
        pair = pseudo_query(titled[index], rng)
        if pair is not None and not shingles.has_copy_of(documents[index].text):
            held[index] = pair
            shingles.add(documents[index].text)
    if len(held) < FEWEST:
        raise BadInput(
            f"only {len(held)} of {len(documents)} documents can be held out as pseudo-queries, and {FEWEST} are "
            f"needed: give more or longer documents (a title, or {_QUERY_WORDS + _REST_WORDS} words)"
        )
    rest = [document for index, document in enumerate(documents) if index not in held]
    training = [document for document in rest if not shingles.has_copy_of(document.text)]
    return Split(training, list(held.values()), len(rest) - len(training))


def with_unique_titles(documents: Sequence[Document]) -> list[Document]:
    """The documents; a title that others share does not identify one, and becomes part of the body."""
    counts = Counter(document.title.lower() for document in documents)
    return [Document("", one.text) if counts[one.title.lower()] > 1 else one for one in documents]


def pseudo_query(document: Document, rng: np.random.Generator) -> tuple[str, str] | None:
    """(query, answer) from one document; None if it is too short."""
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
    """A third of a text without sentence boundaries, at most twelve words, and the rest."""
    words = word_places(text)
    size = min(12, len(words) // 3)
    if size < _QUERY_WORDS or len(words) - size < _REST_WORDS:
        return None
    first = int(rng.integers(len(words) - size + 1))
    return _taken_out(text, words[first], [*words, len(text)][first + size])


def _taken_out(text: str, start: int, end: int) -> tuple[str, str]:
    return text[start:end].strip(), (text[:start] + text[end:]).strip()


class _Shingles:
    """Finds near-copies of texts by their runs of eight words; ignores boilerplate unless a text is nothing else.

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
        shared = Counter(owner for shingle in shingles for owner in self._owners.get(shingle, ()))
        return any(count >= COPY * min(len(shingles), self._sizes[owner]) for owner, count in shared.items())

    def _of(self, text: str) -> set[int]:
        shingles = _shingles(text)
        return shingles - self._boilerplate or shingles


def _shingles(text: str) -> set[int]:
    units = _UNIT.findall(text.lower())
    return {hash(tuple(units[i : i + _SHINGLE])) for i in range(max(1, len(units) - _SHINGLE + 1))}


def write_task(folder: Path, parts: Split, seed: int) -> None:
    """Write the search task in BEIR's format: `corpus.jsonl`, `queries.jsonl`, `qrels/{dev,test}.tsv`."""
    chosen = permutation(seed, 0, len(parts.training), "beside")[:DISTRACTORS] if parts.training else []
    distractors = [parts.training[i] for i in chosen]
    texts = [answer for _, answer in parts.queries] + [document.body or document.title for document in distractors]
    corpus = ({"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(texts))
    queries = ({"_id": f"q{i}", "text": query} for i, (query, _) in enumerate(parts.queries))
    dev, test = ([(f"q{i}", f"d{i}") for i in range(part, len(parts.queries), 2)] for part in (0, 1))
    write_set(folder, corpus, queries, dev=dev, test=test)
