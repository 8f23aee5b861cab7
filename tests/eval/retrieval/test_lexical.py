"""BM25 equals a slow loop over its formula, and what has no word is defined."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from common.files import ROOT
from eval.retrieval.lexical import Lexical, Words

K1, B = 1.2, 0.75
TEXTS = ["The cats sat; a cat purrs.", "", "The dog and the dogs!", "of the", "cats, dogs and 猫犬"]
TEXTS.append("purring cat-dog x")
QUERIES = ["cats and dogs", "cat cat dog", "the purr of 猫", "CAT unheardof"]
QUERIES += ["", "  ?!", "unheardof", "the of and"]  # without a known word


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
    words, matched = Words(language), 0
    for name, texts in {"a": [*TEXTS, *sentences[:80]], "without a word": ["", "of the"]}.items():
        lexical = Lexical.of(iter(texts), language)
        lexical.save(tmp_path / name)
        kept = Lexical.load(tmp_path / name, language, len(texts))
        for query in [*QUERIES, sentences[3], sentences[90]]:
            expected = by_hand(texts, query, words)
            matched += max(expected) > 0
            assert lexical.scores(query) == pytest.approx(expected, abs=1e-5)
            assert np.array_equal(kept.scores(query), lexical.scores(query))
    assert matched >= 6


def test_words_know_their_places():
    text = "The Running dogs, 猫犬."
    assert Words()(text) == [term for *_, term in Words().spans(text)] == ["run", "dog", "猫", "犬"]
    found = [text[start:end] for start, end, _ in Words().spans(text)]
    assert found == ["Running", "dogs", "猫", "犬"]
    assert Words("none")(text) == ["the", "running", "dogs", "猫", "犬"]


# ruff: disable[RUF001]
FORMS = [
    ("arabic", "وَقَرَأَ الكُتُبَ فِي المَكْتَبَةِ", "مكتبة", 1),
    ("none", "ভাষা আন্দোলনের ইতিহাস", "ইতিহাস", 1),
    ("none", "今天的天气很好", "天气", 2),
    ("danish", "Bøgerne ligger på bordet", "bøger", 1),
    (
        "english",
        "The o\ufb03ce \uff26\uff29\uff2c\uff25s, soft\u00adware",
        "office file software",
        3,
    ),
    ("finnish", "Asumme vanhoissa taloissa", "talossa", 1),
    ("french", "Les e\u0301tudiantes travaillaient", "ÉTUDIANTE travailler", 2),
    ("german", "Die Häuser an der Straße in Zu\u0308rich", "haus STRASSE zürich", 3),
    ("greek", "Οι γάτες κοιμούνται", "ΓΑΤΑ", 1),
    ("none", "יְרוּשָׁלַיִם עִיר", "ירושלים", 1),
    ("hindi", "लड़कियाँ विद्यालय जाती हैं", "लड़की विद्यालयों", 2),
    ("none", "\uff76\uff9e\uff7f\uff98\uff9dを買う", "ガソリン", 4),
    ("none", "ភាសាខ្មែរ", "ខ្មែរ", 5),
    ("none", "\u1112\u1161\u11ab국어 사전", "한국어", 1),
    ("persian", "کتاب\u200cهای من", "کتابهای", 1),
    ("russian", "Кошки спят в домах", "кошка дом", 2),
    ("swedish", "Hundarna sover i trädgården", "hund trädgård", 2),
    ("tamil", "புத்தகங்கள் மேசையில்", "புத்தகம்", 1),
    ("none", "తెలుగు భాష మాట్లాడతారు", "భాష", 1),
    ("none", "ภาษา\u200bไทย", "ไทย", 3),
    ("turkish", "İSTANBUL'DA IŞIKLAR", "istanbul ışık", 2),
    ("none", "Ti\u00eang Vi\u1ec7t", "vie\u0323\u0302t", 1),
]
# ruff: enable[RUF001]


@pytest.mark.parametrize(("language", "document", "query", "count"), FORMS)
def test_queries_in_other_forms_and_scripts_match(language, document, query, count):
    words = Words(language)
    assert len(words(query)) == count and {*words(query)} <= {*words(document)}


def test_jax_is_not_imported(tmp_path):
    """bm25s runs JAX where it is installed, and JAX takes most of a GPU's memory."""
    (tmp_path / "jax.py").write_text("raise SystemExit('JAX was imported')")
    command = [sys.executable, "-c", "import eval.retrieval.lexical"]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(tmp_path)})
