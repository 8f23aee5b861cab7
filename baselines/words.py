"""Averaged word vectors: read a text file and save it as an encoder.

The file is in GloVe's format (a word and its numbers a line), or in word2vec's with its header line.
"""

import math
from array import array
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from tqdm.auto import tqdm

from common.errors import BadInput
from data.lines import numbered_lines
from models.encoder import SentenceEncoder
from models.word_vectors import SPECIAL, WordTokenizer, WordVectors

LONGEST = 1_000_000  # words of a sentence: no limit in practice


class WordFile(NamedTuple):
    """Words in the order of the file, and their vectors behind some zero rows."""

    words: list[str]
    table: np.ndarray  # (zero rows + words, D) float32


def read_word_vectors(path: Path, header: bool = False, zero_rows: int = 0, progress: bool = False) -> WordFile:
    """Read a file, plain, .gz, .xz or .zst; the numbers are held once, in float32.

    Args:
        path: single spaces separate; the first vector decides how many numbers a line has. A word may hold spaces, as
            some of GloVe's largest file do.
        header: the first line is word2vec's `COUNT DIMENSIONS`, and is checked.
        zero_rows: rows of zeros in front of the table.
        progress: show a bar.

    Raises:
        BadInput: with file and line: an unexpected or wrong header, another number of columns, a number that is not
            finite, a repeated word, an empty file, and what `data.lines` refuses.
    """
    lines = tqdm(numbered_lines(path), desc="read", unit="word", disable=not progress, leave=False)
    announced, width = None, None
    rows: dict[str, int] = {}  # word -> line
    table = array("f")
    for number, line in lines:
        parts = line.rstrip(" ").split(" ")
        place = f"{path}:{number}"
        if number == 1 and _is_header(parts, header, place):
            announced = (int(parts[0]), int(parts[1]))
            width = announced[1]
            continue
        if width is None:
            width = len(parts) - 1
        if not table:
            table.extend([0.0] * (zero_rows * width))
        word, numbers = _split(parts, width, place)
        if word in rows:
            raise BadInput(f"{place}: the word '{word}' stands in line {rows[word]} already; keep one of them")
        table.extend(_finite(numbers, place))
        rows[word] = number
    if not rows:
        raise BadInput(f"{path}: holds no word vectors (it is empty)")
    if announced and announced[0] != len(rows):
        raise BadInput(f"{path}:1: the header announces {announced[0]} words, {len(rows)} are there; is it cut off?")
    return WordFile(list(rows), np.frombuffer(table, dtype=np.float32).reshape(-1, width))


def _is_header(parts: list[str], wanted: bool, place: str) -> bool:
    """Whether the first line is a header; BadInput where that contradicts `--header`."""
    looks = len(parts) == 2 and all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts)
    if looks and not wanted:
        raise BadInput(f"{place}: '{' '.join(parts)}' is word2vec's header line; give --header to read such files")
    if wanted and not looks:
        raise BadInput(f"{place}: --header, but the line is not two numbers, count and dimensions")
    return looks


def _split(parts: list[str], width: int, place: str) -> tuple[str, list[str]]:
    """The word and its `width` numbers."""
    more = len(parts) - width
    within = parts[1:more]  # of a word with spaces; numbers there are too many numbers
    if width < 1 or more < 1 or any(_is_number(part) for part in within):
        raise BadInput(f"{place}: {len(parts) - 1} numbers, expected {max(width, 1)}; is the line whole?")
    word = " ".join(parts[:more])
    if not word:
        raise BadInput(f"{place}: no word in front of the numbers")
    return word, parts[more:]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _finite(numbers: list[str], place: str) -> array:
    try:
        values = array("f", map(float, numbers))
    except ValueError:
        bad = next(text for text in numbers if not _is_number(text))
        raise BadInput(f"{place}: '{bad}' is not a number") from None
    if not math.isfinite(sum(values)):
        bad = next(text for text, value in zip(numbers, values, strict=True) if not math.isfinite(value))
        raise BadInput(f"{place}: '{bad}' is not a finite number of float32")
    return values


def _english() -> Collection[str]:
    """The stop words that sentence-transformers' averaged word vectors leave out by default."""
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    return WhitespaceTokenizer().stop_words


STOP_WORDS = {"english": _english, "none": tuple}


def save_words(folder: str, file: WordFile, lower_case: bool, stop_words: Collection[str]) -> None:
    """Write saved format 1, pooling `avg`; `file.table` (V, D) starts with the zero rows of `SPECIAL`."""
    for word in SPECIAL:
        if word in file.words:
            raise BadInput(f"the word '{word}' of the file is reserved here; remove its line")
    vocabulary = Path(folder) / WordTokenizer.vocab_files_names["vocab_file"]
    vocabulary.parent.mkdir(parents=True, exist_ok=True)
    vocabulary.write_bytes("".join(word + "\n" for word in file.words).encode("utf-8"))
    tokenizer = WordTokenizer(str(vocabulary), lower_case, stop_words)
    encoder = SentenceEncoder(WordVectors.of(torch.from_numpy(file.table)), "avg", max_length=LONGEST)
    encoder.save(folder, tokenizer)
