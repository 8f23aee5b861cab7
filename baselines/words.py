"""Averaged word vectors from a file: GloVe's, word2vec's.

They are averaged by sentence-transformers' own modules, as for the papers' 61.32 with GloVe: a word
is looked up as written, then without surrounding punctuation, then in lower case. English stop
words and unknown words are left out; a sentence without a known word has the zero vector.

Sentences of the same words in another order have a cosine of 1 up to rounding: every fourth pair of
SICK-R. Its rank correlation therefore varies by up to 0.2 points with the sizes of the batches.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, WordEmbeddings

from common.errors import BadInput, brief
from eval.encode import Encoder, device_here


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


def averaged(words: WordEmbeddings) -> Encoder:
    """Sentences to the averages of their words' vectors."""
    modules = [words, Pooling(words.get_embedding_dimension(), "mean")]
    model = SentenceTransformer(modules=modules, device=device_here())

    def encode(sentences: list[str]) -> np.ndarray:
        return model.encode(sentences, show_progress_bar=False)

    return encode
