"""Averaged word vectors: GloVe's or word2vec's from a file, or learnt from a text.

They are averaged by sentence-transformers' own modules, as for the papers' 61.32 with GloVe: a word
is looked up as written, then without surrounding punctuation, then in lower case. English stop
words and unknown words are left out; a sentence without a known word has the zero vector.

Sentences of the same words in another order have a cosine of 1 up to rounding: every fourth pair of
SICK-R. Its rank correlation therefore varies by up to 0.2 points with the sizes of the batches.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.linalg import svds
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, WordEmbeddings
from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

from common.errors import BadInput, brief
from eval.encode import Encoder, device_here

# Of learnt vectors: those of GloVe's smallest file; window and smoothing as in Levy, Goldberg and
# Dagan 2015; the rest is ours, so that a million sentences take minutes.
DIMENSIONS, WINDOW, SMOOTHING, LEAST, MOST_WORDS = 300, 5, 0.75, 5, 30_000


def read_words(path: Path) -> WordEmbeddings:
    """The vectors of a file of lines of a word and its numbers, plain or .gz.

    Raises:
        BadInput: there is no such file, or it is another kind of file.
    """
    if not path.is_file():  # sentence-transformers would look for it on its server
        raise BadInput(f"{path}: no such file")
    try:
        return WordEmbeddings.from_text_file(str(path))
    except (ValueError, OSError, EOFError) as error:
        raise BadInput(
            f"{path}: not lines of a word and its numbers, as in GloVe's files ({brief(error)})"
        ) from error


def learn_words(texts: Sequence[str]) -> WordEmbeddings:
    """The vectors of the words of a text, U sqrt(S) of an SVD.

    It is that of their positive pointwise mutual information. Words are in lower case, without
    surrounding punctuation; those with fewer than LEAST occurrences and all but the MOST_WORDS most
    frequent are left out. Two words co-occur if they are at most WINDOW words apart in a sentence;
    the context's probability is proportional to its count to the power SMOOTHING. Source: Levy,
    Goldberg and Dagan 2015 (TACL 3), whose best eigenvalue weighting is 0.5.

    Raises:
        BadInput: fewer than three words are frequent enough, or they never co-occur.
    """
    sentences = [_words_of(text) for text in texts]
    counted = Counter(word for sentence in sentences for word in sentence)
    words = [word for word, count in counted.most_common(MOST_WORDS) if count >= LEAST]
    counts = _cooccurrences(sentences, words)
    if len(words) < 3 or not counts.nnz:
        raise BadInput(
            f"the text has {len(words)} words with {LEAST} occurrences: too few to learn vectors "
            "from"
        )
    totals = np.maximum(counts.sum(1), 1)  # a word alone in its sentences has nothing to divide
    context = totals**SMOOTHING / (totals**SMOOTHING).sum()
    row, column = counts.coords
    values = np.maximum(np.log(counts.data) - np.log(totals[row]) - np.log(context[column]), 0)
    size = min(DIMENSIONS, len(words) - 1)
    information = csr_array((values, (row, column)), counts.shape)
    left, scale, _ = svds(information, size, v0=np.ones(len(words)))
    vectors = (left * np.sqrt(scale))[:, ::-1]  # from the largest
    padding = np.zeros((1, size))  # the first row, as in `WordEmbeddings.from_text_file`
    tokenizer = WhitespaceTokenizer(["PADDING_TOKEN", *words])
    return WordEmbeddings(tokenizer, np.vstack([padding, vectors]).astype(np.float32))


def averaged(words: WordEmbeddings) -> Encoder:
    """Sentences to the averages of their words' vectors."""
    modules = [words, Pooling(words.get_embedding_dimension(), "mean")]
    model = SentenceTransformer(modules=modules, device=device_here())

    def encode(sentences: list[str]) -> np.ndarray:
        return model.encode(sentences, show_progress_bar=False)

    return encode


def _words_of(text: str) -> list[str]:
    stripped = [word.strip(string.punctuation).lower() for word in text.split()]
    return [word for word in stripped if word]


def _cooccurrences(sentences: Sequence[Sequence[str]], words: Sequence[str]) -> coo_array:
    """How often two of the V words are at most WINDOW words apart in a sentence: (V, V)."""
    rows = {word: row for row, word in enumerate(words)}
    flat = np.array([rows.get(word, -1) for sentence in sentences for word in sentence])
    sentence = np.repeat(np.arange(len(sentences)), [len(sentence) for sentence in sentences])
    counts = csr_array((len(words), len(words)))
    for distance in range(1, WINDOW + 1):
        left, right = flat[:-distance], flat[distance:]
        near = (sentence[:-distance] == sentence[distance:]) & (left >= 0) & (right >= 0)
        counts += coo_array((np.ones(near.sum()), (left[near], right[near])), counts.shape).tocsr()
    return (counts + counts.T).tocoo()
