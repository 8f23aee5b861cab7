"""A table of word vectors as an encoder in a folder."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import torch

from baselines.word_file import WordFile
from common.errors import BadInput
from models.encoder import SentenceEncoder
from models.word_vectors import SPECIAL, WordTokenizer, WordVectors

LONGEST = 1_000_000  # words of a sentence: no limit in practice


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
