"""BM25 equals a slow loop over its formula, and what has no word is defined."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from common.files import ROOT
from eval.retrieval.lexical import LANGUAGES, Lexical, Words

K1, B = 1.2, 0.75
TEXTS = [
    "The cats sat; a cat purrs.",
    "",
    "The dog and the dogs!",
    "of the",
    "cats, dogs and 猫犬",
    "purring cat-dog x",
]


def by_hand(texts, query, words):
    """The formula, one document and one word of the query at a time."""
    documents = [words(text) for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        score = 0.0
        for term in words(query):
            containing = sum(term in other for other in documents)
            if frequency := document.count(term):
                idf = math.log(1 + (len(documents) - containing + 0.5) / (containing + 0.5))
                score += idf * frequency / (frequency + K1 * (1 - B + B * len(document) / mean))
        scores.append(score)
    return scores


@pytest.mark.parametrize("language", ["english", "german", "none"])
def test_scores_equal_the_formula(language, sentences, tmp_path):
    texts, words = [*TEXTS, *sentences[:80]], Words(language)
    lexical = Lexical.of(iter(texts), language)
    lexical.save(tmp_path / "bm25")
    kept = Lexical.load(tmp_path / "bm25", language, len(texts))
    for query in (
        "cats and dogs",
        "cat cat dog",
        "the purr of 猫",
        "CAT unheardof",
        sentences[3],
        sentences[90],
    ):
        expected = by_hand(texts, query, words)
        assert lexical.scores(query) == pytest.approx(expected, abs=1e-5) and max(expected) > 0
        assert np.array_equal(kept.scores(query), lexical.scores(query))
    assert lexical.scores("cat")[[1, 3]].tolist() == [0, 0], "documents without a word that counts"


@pytest.mark.parametrize("query", ["", "  ?!", "unheardof", "the of and"])
def test_a_query_without_a_known_word_scores_nothing(query):
    assert Lexical.of(TEXTS).scores(query).tolist() == [0] * len(TEXTS)


def test_a_corpus_without_a_word_scores_nothing(tmp_path):
    lexical = Lexical.of(["", "of the"])
    lexical.save(tmp_path / "bm25")
    for either in (lexical, Lexical.load(tmp_path / "bm25", "english", 2)):
        assert either.scores("cat").tolist() == [0, 0]


def test_words_are_stemmed_in_english_only_and_know_their_places():
    text = "The Running dogs, 猫犬."
    assert Words()(text) == [term for *_, term in Words().spans(text)] == ["run", "dog", "猫", "犬"]
    assert [text[start:end] for start, end, _ in Words().spans(text)] == [
        "Running",
        "dogs",
        "猫",
        "犬",
    ]
    assert Words("none")(text) == ["the", "running", "dogs", "猫", "犬"]
    assert Words("german")("Die Hunde und Katzen") == ["hunde", "katzen"]
    assert all(Words(name)._stop for name in LANGUAGES if name != "none")


def test_jax_is_not_imported(tmp_path):
    """bm25s runs JAX where it is installed, and JAX takes most of a GPU's memory."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text(
        "raise SystemExit('JAX was imported')", encoding="utf-8"
    )
    command = [sys.executable, "-c", "import eval.retrieval.lexical"]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(tmp_path)})
