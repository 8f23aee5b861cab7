"""The word starts of a tokenizer's vocabulary, and a tokenizer trained on a text."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer, BertTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

from common.errors import BadInput
from common.folders import cached
from data.source import Source
from data.text import Text, read_text

_SPACES = {"ByteLevel": "Ġ", "Metaspace": "▁"}  # decoder -> how a token marks a leading space
# UTF-8 of scripts without spaces between words: Thai, Lao, Tibetan; Burmese, Khmer; Chinese,
# Japanese. Also the first byte of such a letter if the vocabulary has only single bytes of it.
_UNSPACED = re.compile(
    rb"\xe0[\xb8-\xbf]|\xe1[\x80-\x82\x9e\x9f]|[\xe3-\xe9]|\xef[\xbc-\xbe]|\xf0[\xa0-\xaf]"
    rb"|[\xe0\xe1\xef\xf0]$"
)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # special tokens of a trained vocabulary


def decoder_of(tokenizer) -> str | None:
    """The type of the decoder in tokenizer.json, which tells how tokens mark words."""
    return (json.loads(tokenizer.backend_tokenizer.to_str()).get("decoder") or {}).get("type")


def word_starts(tokenizer) -> np.ndarray:
    """Return whether each token begins a word, (vocabulary,) bool.

    In a script without spaces every token is a word; otherwise a sentence would be a single one.

    Raises:
        BadInput: the tokenizer is of a kind that is not supported.
    """
    decoder = decoder_of(tokenizer)
    named = {number: token for token, number in tokenizer.get_vocab().items()}
    tokens = [named.get(number, "") for number in range(max(named) + 1)]  # ids may have gaps
    if decoder == "WordPiece":
        begins = [not token.startswith("##") for token in tokens]
    elif decoder in _SPACES:
        begins = [token.startswith(_SPACES[decoder]) for token in tokens]
    else:
        raise BadInput(
            "whole words are supported for WordPiece, byte-level BPE and sentencepiece, not for "
            f"'{decoder}'"
        )
    byte_of: dict[str, int] = {}
    if decoder == "ByteLevel":
        byte_of = {letter: byte for byte, letter in bytes_to_unicode().items()}
    unspaced = []
    for token in tokens:
        is_bytes = byte_of.keys() >= {*token}
        text = bytes(byte_of[letter] for letter in token) if is_bytes else token.encode()
        unspaced.append(_UNSPACED.search(text) is not None)
    return np.array(begins) | np.array(unspaced)


def train_tokenizer(source: Source, size: int, cache_dir: str | Path):
    """Train BERT's lower-casing tokenizer on a text, cached by the text's content.

    It has at most `size` pieces, but always the special tokens and all letters of the text.
    BadInput as `read_text`.
    """

    def make(folder: Path) -> None:
        _learn(read_text(source, cache_dir), size).save_pretrained(folder)

    folder = cached(Path(cache_dir) / f"vocabulary-{source.key(size)}", make)
    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def _learn(text: Text, size: int) -> BertTokenizer:
    # The library numbers letters inside words in hash-table order, which differs between processes,
    # and merges equally frequent pairs in the order of their numbers. So the letters are collected
    # and numbered first.
    letters = sorted(_pieces(text, 0, SPECIAL).keys() - set(SPECIAL))
    vocabulary = _pieces(text, size, [*SPECIAL, *letters])
    tokenizer = _blank(models.WordPiece(vocabulary, unk_token="[UNK]"))
    cls, sep = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", cls), ("[SEP]", sep)]
    )
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return BertTokenizer(tokenizer_object=tokenizer, model_max_length=512)


def _pieces(text: Text, size: int, first: Sequence[str]) -> dict[str, int]:
    """Train a vocabulary whose lowest ids are `first`, with all letters whatever `size` is."""
    tokenizer = _blank(models.WordPiece(unk_token="[UNK]"))
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=list(first), show_progress=False
    )
    tokenizer.train_from_iterator(text.cells(), trainer)
    return tokenizer.get_vocab()


def _blank(model: models.WordPiece) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer
