"""Pseudo-queries: made from documents, to compare searches without judged queries.

A kind of query turns a document into a query and its answer, the text that the query should find. A
title or a sentence is taken out of the answer; keywords and questions leave it whole.
results/pseudo-queries.md says how far the gains of a search on each kind are from those on judged
queries. All rules are plain ones: no tagger, no model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil, log

import numpy as np

from eval.retrieval.lexical import UNSPACED, Words, word_places

Pair = tuple[str, str]  # query, answer
# Full-width stops, exclamation and question marks need no following space; a closing bracket
# belongs to the sentence.
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])(?![\u300d\u300f\uff09]|$)\s*")
_QUERY_WORDS, _ANSWER_WORDS = 4, 8  # least, of a sentence and of what it leaves
_PIECE = 12  # words
_RAREST = 0.5  # share of a sentence's words that is left out or replaced
_KEYWORDS = 2, 8
_PHRASE = re.compile(
    rf"[^\W\d_{UNSPACED}]+(?:[ -][^\W\d_{UNSPACED}]+)*"
)  # words between which there is only a space
_LONGEST_PHRASE = 4
_QUESTIONS = (  # how users of search engines and of libraries ask
    "what is {0}",
    "how does {0} work",
    "what is known about {0}",
    "what is the effect of {0} on {1}",
    "how are {0} and {1} related",
    "articles on {0} and {1}",
    "how is {0} used for {1}",
)


class PseudoQueries:
    """Makes queries from the documents of a corpus.

    Args:
        texts: all documents; they say how rare a word is.
        language: of the words, see `eval.retrieval.lexical`; questions are English.
    """

    def __init__(self, texts: Sequence[str], language: str = "english") -> None:
        self._words = Words(language)
        self._counts = Counter(term for text in texts for term in {*self._words(text)})
        self._documents = len(texts)

    def make(self, kind: str, title: str, body: str, rng: np.random.Generator) -> Pair | None:
        """A query of one of `KINDS` and its answer; None if the document is too short for it."""
        source, _, made = kind.partition(", ")
        whole = f"{title} {body}".strip()
        pair = (whole, whole) if source == "document" else _TAKEN[source](self, title, body, rng)
        return _MADE[made](self, pair, rng) if pair and made else pair

    def title(self, title: str, body: str, rng: np.random.Generator) -> Pair | None:
        return (
            (title, body)
            if len(word_places(title)) > 1 and len(word_places(body)) >= _ANSWER_WORDS
            else None
        )

    def first(self, title: str, body: str, rng: np.random.Generator) -> Pair | None:
        """The first sentence of the body; the title stays in the answer."""
        return _taken_out(title, body, lambda count: 0)

    def sentence(self, title: str, body: str, rng: np.random.Generator) -> Pair | None:
        """Any sentence of the body."""
        return _taken_out(title, body, lambda count: int(rng.integers(count)))

    def reduced(self, pair: Pair, rng: np.random.Generator) -> Pair | None:
        """A query without the rarest half of its words: nobody who searches knows them all."""
        return self._without_rarest(pair, lambda: "")

    def replaced(self, pair: Pair, rng: np.random.Generator) -> Pair | None:
        """A query whose rarest half is replaced by words of the answer."""
        places = [*self._words.spans(pair[1])]

        def other() -> str:
            start, end, _ = places[int(rng.integers(len(places)))]
            return pair[1][start:end]

        return self._without_rarest(pair, other) if places else None

    def _without_rarest(self, pair: Pair, other: Callable[[], str]) -> Pair | None:
        query, answer = pair
        places = sorted(self._words.spans(query), key=lambda place: self._counts[place[2]])
        rarest = places[: ceil(_RAREST * len(places))]
        for start, end, _ in sorted(rarest, reverse=True):
            query = f"{query[:start]}{other()}{query[end:]}"
        return (" ".join(query.split()), answer) if len(places) - len(rarest) >= 2 else None

    def keywords(self, pair: Pair, rng: np.random.Generator) -> Pair | None:
        """2 to 8 words of a query, drawn without replacement by their frequency in it times their rarity elsewhere."""
        shown = {
            term: pair[0][start:end].lower() for start, end, term in self._words.spans(pair[0])
        }
        if len(shown) < _KEYWORDS[0]:
            return None
        frequency = Counter(self._words(pair[0]))
        weights = np.array(
            [
                frequency[term] * log(1 + self._documents / (1 + self._counts[term]))
                for term in shown
            ]
        )
        count = int(rng.integers(_KEYWORDS[0], min(_KEYWORDS[1], len(shown)) + 1))
        drawn = rng.choice([*shown], count, replace=False, p=weights / weights.sum())
        return " ".join(shown[term] for term in drawn), pair[1]

    def question(self, pair: Pair, rng: np.random.Generator) -> Pair | None:
        """A template about phrases of a query: runs of two to four words none of which is a stop word."""
        phrases: dict[str, None] = {}
        for run in _PHRASE.finditer(pair[0].lower()):
            groups: list[list[tuple[int, int, str]]] = []
            for place in self._words.spans(run[0]):
                if (
                    groups
                    and place[0] == groups[-1][-1][1] + 1
                    and len(groups[-1]) < _LONGEST_PHRASE
                ):
                    groups[-1].append(place)
                else:
                    groups.append([place])
            phrases.update(
                (run[0][group[0][0] : group[-1][1]], None) for group in groups if len(group) > 1
            )
        if not phrases:
            return None
        two = [str(phrase) for phrase in rng.permutation([*phrases])[:2]]
        forms = [form for form in _QUESTIONS if len(two) > 1 or "{1}" not in form]
        return forms[int(rng.integers(len(forms)))].format(*two), pair[1]


_TAKEN = {
    "title": PseudoQueries.title,
    "first": PseudoQueries.first,
    "sentence": PseudoQueries.sentence,
}
_MADE = {
    "reduced": PseudoQueries.reduced,
    "replaced": PseudoQueries.replaced,
    "keywords": PseudoQueries.keywords,
    "question": PseudoQueries.question,
}
KINDS = (
    *_TAKEN,
    "first, reduced",
    "first, replaced",
    "first, keywords",
    "first, question",
    "sentence, reduced",
    "document, keywords",
    "document, question",
)


def _taken_out(title: str, body: str, choose: Callable[[int], int]) -> Pair | None:
    """One of the sentences that are long enough, and the document without it.

    Of a text without boundaries of sentences, pieces of twelve words, at most a third, take their
    place.
    """
    bounds = [*pairwise([0, *(match.end() for match in _SENTENCE.finditer(body)), len(body)])]
    bounds = [
        (start, end) for start, end in bounds if len(word_places(body[start:end])) >= _QUERY_WORDS
    ]
    if len(bounds) < 2:
        words = word_places(body)
        size = min(_PIECE, len(words) // 3)
        if size < _QUERY_WORDS:
            return None
        bounds = [*pairwise([*words[: len(words) // size * size : size], len(body)])]
    start, end = bounds[choose(len(bounds))]
    answer = f"{title} {body[:start]}{body[end:]}".strip()
    return (body[start:end].strip(), answer) if len(word_places(answer)) >= _ANSWER_WORDS else None
