"""Pseudo-queries: made from documents, to compare searches without judged queries.

A query is the first sentence of a document, or a few of that sentence's words. The sentence is
taken out, and the rest of the document is the answer. Both are plain rules: no tagger, no model.
results/pseudo-queries.md compares them with nine others and with judged queries.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import log
from typing import NamedTuple

import numpy as np

from data.draws import permutation
from eval.retrieval.lexical import Words, normal, word_places
from search.index import Document

SHARE, MOST = 1 / 3, 600  # of the documents that make a query: share and maximum
# Full-width stops, exclamation and question marks need no following space; a closing bracket
# belongs to the sentence.
_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n|(?<=[\u3002\uff01\uff1f])(?![\u300d\u300f\uff09]|$)\s*")
_QUERY_WORDS, _ANSWER_WORDS = 4, 8  # least, of a sentence and of what it leaves
_PIECE = 12  # words
_KEYWORDS = 2, 8


class PseudoQuery(NamedTuple):
    """A query, the number of the document that it is made from, and what is left of that."""

    text: str
    document: int
    answer: str


def pseudo_queries(
    documents: Sequence[Document], seed: int, language: str = "english"
) -> list[PseudoQuery]:
    """Queries from at most `SHARE` of the documents, one from each, at most `MOST`.

    A sentence that two documents have makes no query, nor does a document of which others have half
    of the sentences: a copy would be as good an answer.

    Args:
        documents: all of a collection; they also say how rare a word is.
        seed: determines the documents and their queries.
        language: of the words, see `eval.retrieval.lexical`.
    """
    words = Words(language)
    sentences = [_sentences(document) for document in documents]
    having: Counter[str] = Counter()  # documents by sentence
    rarity: Counter[str] = Counter()  # documents by term
    for document, places in zip(documents, sentences, strict=True):
        having.update({_key(document.text[start:end]) for start, end in places})
        rarity.update({*words(document.text)})
    queries: list[PseudoQuery] = []
    for number in permutation(seed, 0, len(documents), "held out").tolist():
        if len(queries) == min(MOST, int(SHARE * len(documents))):
            break
        text, places = documents[number].text, sentences[number]
        own = [place for place in places if having[_key(text[slice(*place)])] == 1]
        if 2 * len(own) <= len(places):
            continue
        start, end = own[0]
        query = " ".join(text[start:end].lstrip("# ").split())
        answer = f"{text[:start]} {text[end:]}".strip()
        rng = np.random.default_rng([seed, number])
        if rng.integers(2):
            query = _keywords(query, words, rarity, len(documents), rng) or query
        if len(word_places(answer)) >= _ANSWER_WORDS:
            queries.append(PseudoQuery(query, number, answer))
    return queries


def _sentences(document: Document) -> list[tuple[int, int]]:
    """First and end character of the sentences that are long enough, without those of the title.

    Of a text without boundaries of sentences, its first twelve words, at most a third, are one.
    """
    text = document.text
    title = re.match(rf"[#\s]*{re.escape(document.title)}", text)
    ends = [match.end() for match in _END.finditer(text, title.end() if title else 0)]
    places = []
    for start, end in pairwise([title.end() if title else 0, *ends, len(text)]):
        if len(word_places(text[start:end])) >= _QUERY_WORDS:
            places.append((start, end))
    if len(places) > 1:
        return places
    words = word_places(text)
    size = min(_PIECE, len(words) // 3)
    return [(words[0], words[size])] if size >= _QUERY_WORDS else []


def _key(sentence: str) -> str:
    return " ".join(normal(sentence).casefold().split())


def _keywords(
    sentence: str, words: Words, rarity: Counter[str], documents: int, rng: np.random.Generator
) -> str | None:
    """2 to 8 words of a sentence, without replacement, by their frequency in it times rarity."""
    sentence = normal(sentence)
    shown = {term: sentence[start:end].lower() for start, end, term in words.spans(sentence)}
    least, most = _KEYWORDS
    if len(shown) < least:
        return None
    frequency = Counter(words(sentence))
    weights = np.array(
        [frequency[term] * log(1 + documents / (1 + rarity[term])) for term in shown]
    )
    count = int(rng.integers(least, min(most, len(shown)) + 1))
    drawn = rng.choice([*shown], count, replace=False, p=weights / weights.sum())
    return " ".join(shown[term] for term in drawn)
