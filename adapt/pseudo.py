"""Pseudo-queries: made from documents, to compare searches without judged queries.

A query is the first sentence of a document, which is taken out of it, or a few of that sentence's
words; the rest of the document is the answer. Both are plain rules: no tagger, no model.
results/pseudo-queries.md compares them with nine others and with judged queries.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import log

import numpy as np

from eval.retrieval.lexical import Words, normal, word_places

KINDS = ("first", "keywords")
Pair = tuple[str, str]  # query, answer
# Full-width stops, exclamation and question marks need no following space; a closing bracket
# belongs to the sentence.
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])(?![\u300d\u300f\uff09]|$)\s*")
_QUERY_WORDS, _ANSWER_WORDS = 4, 8  # least, of a sentence and of what it leaves
_PIECE = 12  # words
_KEYWORDS = 2, 8


class PseudoQueries:
    """Makes queries from the documents of a corpus.

    Args:
        texts: all documents; they say how rare a word is.
        language: of the words, see `eval.retrieval.lexical`.
    """

    def __init__(self, texts: Sequence[str], language: str = "english") -> None:
        self._words = Words(language)
        self._counts = Counter(term for text in texts for term in {*self._words(text)})
        self._documents = len(texts)

    def make(self, kind: str, title: str, body: str, rng: np.random.Generator) -> Pair | None:
        """A query of one of `KINDS` and its answer; None if the document is too short for it."""
        pair = first_sentence(title, body)
        return self._keywords(pair, rng) if pair and kind == "keywords" else pair

    def _keywords(self, pair: Pair, rng: np.random.Generator) -> Pair | None:
        """2 to 8 words of a query, without replacement, by their frequency in it times rarity."""
        query, answer = normal(pair[0]), pair[1]
        shown = {term: query[start:end].lower() for start, end, term in self._words.spans(query)}
        least, most = _KEYWORDS
        if len(shown) < least:
            return None
        frequency = Counter(self._words(query))
        rarity = {term: log(1 + self._documents / (1 + self._counts[term])) for term in shown}
        weights = np.array([frequency[term] * rarity[term] for term in shown])
        count = int(rng.integers(least, min(most, len(shown)) + 1))
        drawn = rng.choice([*shown], count, replace=False, p=weights / weights.sum())
        return " ".join(shown[term] for term in drawn), answer


def first_sentence(title: str, body: str) -> Pair | None:
    """The first sentence that is long enough, and the document without it; None if too short.

    Of a text without boundaries of sentences, pieces of twelve words, at most a third, take their
    place.
    """
    ends = [match.end() for match in _SENTENCE.finditer(body)]
    bounds = []
    for start, end in pairwise([0, *ends, len(body)]):
        if len(word_places(body[start:end])) >= _QUERY_WORDS:
            bounds.append((start, end))
    if len(bounds) < 2:
        words = word_places(body)
        size = min(_PIECE, len(words) // 3)
        if size < _QUERY_WORDS:
            return None
        bounds = [(words[0], words[size])]
    start, end = bounds[0]
    answer = f"{title} {body[:start]}{body[end:]}".strip()
    return (body[start:end].strip(), answer) if len(word_places(answer)) >= _ANSWER_WORDS else None
