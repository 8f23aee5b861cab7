"""BM25: how well the words of a document match the words of a query.

The variant is Lucene's (bm25s `method="lucene"`, arXiv 2407.03618), which never punishes a common
word. The score of a document is the sum over the words of the query, a repeated word as often as it
is repeated, of

    ln(1 + (N - n + 0.5) / (n + 0.5)) * f / (f + k1 * (1 - b + b * length / mean length))

with k1 = 1.2, b = 0.75, N documents, n of which contain the word, and f times in this document.
Texts are folded as Unicode's NFKC_Casefold says: composed and decomposed letters, full-width ones
and ligatures are the same, and soft hyphens and zero-width characters do not count; nor do the
vowel points of Hebrew and Arabic. Words are runs of at least two letters, digits or combining marks
and, in scripts without spaces, single characters. Stop words do not count, in the languages of
which bm25s has them, and words are reduced to their Snowball stem.

A document without a word of the query has score 0 and so has every document for a query without a
known word.
"""

from __future__ import annotations

import logging
import re
import sys
import unicodedata
from array import array
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import Stemmer

from common.errors import BadInput

if TYPE_CHECKING:
    import bm25s

K1, B = 1.2, 0.75
# Two stemmers of PyStemmer are older ones of a language that has another.
LANGUAGES = [name for name in Stemmer.algorithms() if not name.endswith("porter")] + ["none"]
# A regex character class of scripts without spaces between words: Thai to Burmese, Khmer, Chinese
# and Japanese with their punctuation.
UNSPACED = (
    "\u0e00-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3001-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
_PLACE = re.compile(rf"[{UNSPACED}]{{1,2}}|[^\s{UNSPACED}]+")
# Of the first two planes: the third and fourth have none.
_CHARACTERS = map(chr, range(0x20000))
_MARK = "".join(char for char in _CHARACTERS if unicodedata.category(char).startswith("M"))
MARKS = rf"(?![\0-\x7f])[{_MARK}]+"  # most words end before ASCII, which is seen at once
_LETTER = rf"[^\W_{UNSPACED}]"  # or digit
_WORD = re.compile(rf"[{UNSPACED}]|{_LETTER}(?:{_LETTER}+|{MARKS})+")
# Unicode's Default_Ignorable_Code_Point, of those that are assigned.
_IGNORED = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
# Vowels of Hebrew and Arabic, which most texts leave out.
_POINTS = re.compile("[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u0652\u0670]")
# Capitals of which Turkish has other small letters than the rest of the world.
_TURKISH = str.maketrans("I\u0130", "\u0131i")


@cache
def _library() -> ModuleType:
    """bm25s, imported without JAX: it would start that, which takes most of a GPU's memory."""
    jax = sys.modules.get("jax")
    sys.modules["jax"] = None  # type: ignore[assignment]  # which makes `import jax` fail
    try:
        import bm25s
        import bm25s.stopwords
    finally:
        del sys.modules["jax"]
        if jax is not None:
            sys.modules["jax"] = jax
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it logs its steps, whatever the root's
    return bm25s


def word_places(text: str) -> list[int]:
    """Return the start of every word, between spaces.

    Two characters are about one word of Chinese or Japanese.
    """
    return [match.start() for match in _PLACE.finditer(text)]


def normal(text: str) -> str:
    """The text in NFKC, without characters that show nothing; words keep their case."""
    return unicodedata.normalize("NFKC", _IGNORED.sub("", text))


class Words:
    """The words of texts in one of `LANGUAGES`, as BM25 compares them."""

    def __init__(self, language: str = "english") -> None:
        if language not in LANGUAGES:
            known = ", ".join(LANGUAGES)
            raise BadInput(f"language '{language}': must be one of {known}")
        self.language = language
        self._stem = str if language == "none" else Stemmer.Stemmer(language).stemWord
        name = "EN_PLUS" if language == "english" else language.upper()
        words = getattr(_library().stopwords, f"STOPWORDS_{name}", ())
        self._stop = {self._fold(word) for word in words}
        self._terms: dict[str, str | None] = {}  # every distinct word is stemmed once

    def spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        """(start, end, term) of every word of a `normal` text that counts."""
        for match in _WORD.finditer(text):
            if term := self._term(match[0]):
                yield *match.span(), term

    def __call__(self, text: str) -> list[str]:
        """The terms of a text, in order."""
        return [term for word in _WORD.findall(normal(text)) if (term := self._term(word))]

    def _fold(self, word: str) -> str:
        if self.language == "turkish":
            word = word.translate(_TURKISH)
        return _POINTS.sub("", normal(word.casefold()))

    def _term(self, word: str) -> str | None:
        if word not in self._terms:
            folded = self._fold(word)
            self._terms[word] = None if folded in self._stop else self._stem(folded)
        return self._terms[word]


class Lexical:
    """The BM25 scores of a corpus.

    Args:
        words: splits texts.
        bm25: of the corpus; None if it has no word at all.
        documents: their number.
    """

    def __init__(self, words: Words, bm25: bm25s.BM25 | None, documents: int) -> None:
        self.words, self.bm25, self.documents = words, bm25, documents

    @classmethod
    def of(cls, texts: Iterable[str], language: str = "english") -> Lexical:
        """Index texts; they are read once and not kept."""
        words, ids = Words(language), []
        vocabulary: dict[str, int] = {}
        for text in texts:
            ids.append(
                array("i", [vocabulary.setdefault(term, len(vocabulary)) for term in words(text)])
            )
        if not vocabulary:
            return cls(words, None, len(ids))
        bm25 = _library().BM25(k1=K1, b=B, method="lucene")
        bm25.index((ids, vocabulary), create_empty_token=False, show_progress=False)
        return cls(words, bm25, len(ids))

    def scores(self, query: str) -> np.ndarray:
        """The score of every document, (N,) float32."""
        if self.bm25 and (terms := self.bm25.get_tokens_ids(self.words(query))):
            return self.bm25.get_scores_from_ids(terms)
        return np.zeros(self.documents, dtype=np.float32)

    def save(self, folder: Path) -> None:
        """Write bm25s's files, arrays and JSON; nothing for a corpus without a word."""
        if self.bm25:
            self.bm25.save(folder, show_progress=False)

    @classmethod
    def load(cls, folder: Path, language: str, documents: int) -> Lexical:
        """The opposite of `save`; the arrays stay on the disk."""
        if not folder.is_dir():
            return cls(Words(language), None, documents)
        bm25 = _library().BM25.load(folder, mmap=True, show_progress=False)
        return cls(Words(language), bm25, documents)
