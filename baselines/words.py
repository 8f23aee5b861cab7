"""Averaged word vectors: read a text file, or learn them from a text, and save them as an encoder.

The file is in GloVe's format (lines of a word and its numbers) or in word2vec's, with a header
line.
"""

import math
import string
from array import array
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array
from scipy.sparse.linalg import svds
from tqdm.auto import tqdm

from common.errors import BadInput
from data.lines import numbered_lines
from models.encoder import SentenceEncoder
from models.word_vectors import WordTokenizer, WordVectors

LONGEST = 1_000_000  # words per sentence: no limit in practice
# Of learnt vectors: those of GloVe's smallest file; window and smoothing as in Levy, Goldberg and
# Dagan 2015; the rest is ours, so that a million sentences take minutes.
DIMENSIONS, WINDOW, SMOOTHING, LEAST, MOST_WORDS = 300, 5, 0.75, 5, 30_000


class WordFile(NamedTuple):
    """Words in file order, and their vectors after some zero rows."""

    words: list[str]
    table: np.ndarray  # (zero rows + words, D) float32


def read_word_vectors(path: Path, zero_rows: int = 0) -> WordFile:
    """Read a file, plain, .gz, .xz, .bz2 or .zst; the numbers are stored once, in float32.

    Args:
        path: separated by single spaces; the first vector determines the number of columns. A word
            may contain spaces, as in GloVe's largest file. A first line of two integers is
            word2vec's `COUNT DIMENSIONS`.
        zero_rows: rows of zeros at the start of the table.

    Raises:
        BadInput: a line, which is named, is not a new word and its numbers; the file has no words
            or not as many as its first line says; an error of `data.lines`.
    """
    rows: dict[str, int] = {}
    announced, width, table = None, 0, array("f")
    for number, line in tqdm(
        numbered_lines(path), desc="read", unit="word", disable=None, leave=False
    ):
        parts = line.rstrip(" ").split(" ")
        if number == 1 and len(parts) == 2 and all(part.isdecimal() for part in parts):
            announced, width = map(int, parts)
            continue
        try:
            if not table:
                width = width or len(parts) - 1
                table.extend([0.0] * (zero_rows * width))
            word, values = " ".join(parts[:-width]), array("f", map(float, parts[-width:]))
            # A number inside the word is one too many: another line was shorter.
            if (
                not word
                or word in rows
                or not math.isfinite(sum(values))
                or any(map(_is_number, parts[1:-width]))
            ):
                raise ValueError
        except (ValueError, OverflowError) as error:
            raise BadInput(
                f"{path}:{number}: expected a new word and {width} finite numbers"
            ) from error
        table.extend(values)
        rows[word] = number
    if not rows or announced not in (None, len(rows)):
        raise BadInput(
            f"{path}: has {len(rows)} words, its first line says {announced}; is it complete?"
        )
    return WordFile(list(rows), np.frombuffer(table, dtype=np.float32).reshape(-1, width))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def learn_word_vectors(texts: Sequence[str], zero_rows: int = 0) -> WordFile:
    """Learn vectors of the words of a text: U sqrt(S) of the SVD of their positive pointwise mutual
    information.

    Words are in lower case, without surrounding punctuation; those with fewer than LEAST
    occurrences and all but the MOST_WORDS most frequent are left out. Two words co-occur if they
    are at most WINDOW words apart in a sentence; the context's probability is proportional to its
    count to the power SMOOTHING. Source: Levy, Goldberg and Dagan 2015 (TACL 3), whose best
    eigenvalue weighting is 0.5.

    Raises:
        BadInput: fewer than three words are frequent enough, or they never co-occur.
    """
    sentences = [
        list(filter(None, (word.strip(string.punctuation).lower() for word in t.split())))
        for t in texts
    ]
    counted = Counter(word for sentence in sentences for word in sentence).most_common(MOST_WORDS)
    words = [word for word, count in counted if count >= LEAST]
    counts = _cooccurrences(sentences, words)
    if len(words) < 3 or not counts.nnz:
        raise BadInput(
            f"the text has {len(words)} words with {LEAST} occurrences: too few to learn vectors "
            "from"
        )
    totals = np.maximum(
        counts.sum(1), 1
    )  # a word that is alone in its sentences has no entry to divide
    context = totals**SMOOTHING / (totals**SMOOTHING).sum()
    row, column = counts.coords
    values = np.maximum(np.log(counts.data) - np.log(totals[row]) - np.log(context[column]), 0)
    size = min(DIMENSIONS, len(words) - 1)
    left, scale, _ = svds(
        csr_array((values, (row, column)), counts.shape), size, v0=np.ones(len(words))
    )
    vectors = (left * np.sqrt(scale))[:, ::-1]  # from the largest
    return WordFile(words, np.vstack([np.zeros((zero_rows, size)), vectors]).astype(np.float32))


def _cooccurrences(sentences: Sequence[Sequence[str]], words: Sequence[str]) -> coo_array:
    """How often two of the V words are at most WINDOW words apart in a sentence, (V, V), symmetric."""
    rows = {word: row for row, word in enumerate(words)}
    flat = np.array([rows.get(word, -1) for sentence in sentences for word in sentence])
    sentence = np.repeat(np.arange(len(sentences)), [len(sentence) for sentence in sentences])
    counts = csr_array((len(words), len(words)))
    for distance in range(1, WINDOW + 1):
        left, right = flat[:-distance], flat[distance:]
        near = (sentence[:-distance] == sentence[distance:]) & (left >= 0) & (right >= 0)
        counts += coo_array((np.ones(near.sum()), (left[near], right[near])), counts.shape).tocsr()
    return (counts + counts.T).tocoo()


def _english() -> Collection[str]:
    """The stop words that sentence-transformers' averaged word vectors ignore by default."""
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    return WhitespaceTokenizer().stop_words


STOP_WORDS = {"english": _english, "none": tuple}


def save_words(folder: str, file: WordFile, stop_words: Collection[str]) -> None:
    """Save in format 1 with pooling `avg`; `file.table` (V, D) starts with the zero rows of `word_vectors.SPECIAL`."""
    vocabulary = Path(folder) / WordTokenizer.vocab_files_names["vocab_file"]
    vocabulary.parent.mkdir(parents=True, exist_ok=True)
    vocabulary.write_bytes("".join(word + "\n" for word in file.words).encode("utf-8"))
    tokenizer = WordTokenizer(str(vocabulary), stop_words)
    encoder = SentenceEncoder(
        WordVectors.of(torch.from_numpy(file.table)), "avg", max_length=LONGEST
    )
    encoder.save(folder, tokenizer)
