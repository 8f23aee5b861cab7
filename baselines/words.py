"""Averaged word vectors: read a text file and save it as an encoder.

The file is in GloVe's format (lines of a word and its numbers) or in word2vec's, with a header line.
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

LONGEST = 1_000_000  # words per sentence: no limit in practice


class WordFile(NamedTuple):
    """Words in file order, and their vectors after some zero rows."""

    words: list[str]
    table: np.ndarray  # (zero rows + words, D) float32


def read_word_vectors(path: Path, header: bool = False, zero_rows: int = 0, progress: bool = False) -> WordFile:
    """Read a file, plain, .gz, .xz, .bz2 or .zst; the numbers are stored once, in float32.

    Args:
        path: separated by single spaces; the first vector determines the number of columns. A word may contain spaces,
            as in GloVe's largest file.
        header: the first line is word2vec's `COUNT DIMENSIONS`, and is checked.
        zero_rows: rows of zeros at the start of the table.
        progress: show a progress bar.

    Raises:
        BadInput: with file and line: an unexpected or wrong header, another number of columns, a number that is not
            finite, a repeated word, an empty file, or an error of `data.lines`.
    """
    lines = tqdm(numbered_lines(path), desc="read", unit="word", disable=not progress, leave=False)
    announced = width = None
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
            raise BadInput(f"{place}: the word '{word}' is already in line {rows[word]}; keep one of them")
        table.extend(_finite(numbers, place))
        rows[word] = number
    if not rows:
        raise BadInput(f"{path}: contains no word vectors; the file is empty")
    if announced and announced[0] != len(rows):
        raise BadInput(f"{path}:1: header announces {announced[0]} words, the file has {len(rows)}; is it truncated?")
    return WordFile(list(rows), np.frombuffer(table, dtype=np.float32).reshape(-1, width))


def _is_header(parts: list[str], wanted: bool, place: str) -> bool:
    """Whether the first line is a header; BadInput if that contradicts `--header`."""
    is_header = len(parts) == 2 and all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts)
    if is_header and not wanted:
        raise BadInput(f"{place}: '{' '.join(parts)}' is a word2vec header; give --header")
    if wanted and not is_header:
        raise BadInput(f"{place}: not a header of two numbers, count and dimensions; remove --header")
    return is_header


def _split(parts: list[str], width: int, place: str) -> tuple[str, list[str]]:
    """The word and its `width` numbers."""
    split = len(parts) - width
    inside = parts[1:split]  # the rest of a word with spaces; a number here means that the line has too many
    if width < 1 or split < 1 or any(_is_number(part) for part in inside):
        raise BadInput(f"{place}: {len(parts) - 1} numbers, expected {max(width, 1)}; is the line complete?")
    word = " ".join(parts[:split])
    if not word:
        raise BadInput(f"{place}: no word before the numbers")
    return word, parts[split:]


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
        raise BadInput(f"{place}: '{bad}' is not a finite number in float32")
    return values


def _english() -> Collection[str]:
    """The stop words that sentence-transformers' averaged word vectors ignore by default."""
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    return WhitespaceTokenizer().stop_words


STOP_WORDS = {"english": _english, "none": tuple}


def save_words(folder: str, file: WordFile, lower_case: bool, stop_words: Collection[str]) -> None:
    """Save in format 1 with pooling `avg`; `file.table` (V, D) starts with the zero rows of `SPECIAL`."""
    for word in SPECIAL:
        if word in file.words:
            raise BadInput(f"the word '{word}' in the file is reserved; remove its line")
    vocabulary = Path(folder) / WordTokenizer.vocab_files_names["vocab_file"]
    vocabulary.parent.mkdir(parents=True, exist_ok=True)
    vocabulary.write_bytes("".join(word + "\n" for word in file.words).encode("utf-8"))
    tokenizer = WordTokenizer(str(vocabulary), lower_case, stop_words)
    encoder = SentenceEncoder(WordVectors.of(torch.from_numpy(file.table)), "avg", max_length=LONGEST)
    encoder.save(folder, tokenizer)
