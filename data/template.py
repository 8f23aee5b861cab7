"""A template around every text, such as `This sentence of "{text}" means {mask}`.

PromptBERT's (arXiv 2201.04337). The tokenizer adds it, as it adds [CLS] and [SEP]. So a saved
folder carries it for every reader, and a long text is cut within it. Such a tokenizer reads the
name of a special token in a text as plain characters, so the template's mask is the only one.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import NamedTuple

from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerFast

from common.errors import BadInput

TEXT, MASK = "{text}", "{mask}"


class Frame(NamedTuple):
    """Ids before and after a text, special tokens included."""

    prefix: list[int]
    suffix: list[int]

    @property
    def added(self) -> int:
        """Number of tokens added to a text."""
        return len(self.prefix) + len(self.suffix)

    def position(self, token: int | None) -> int | None:
        """The index of a token in any framed text, below 0 after the text; None if absent."""
        ids = self.prefix + self.suffix
        if token not in ids:
            return None
        index = ids.index(token)
        return index if index < len(self.prefix) else index - len(ids)


def frame_of(tokenizer) -> Frame:
    """Return what a fast tokenizer adds to a text; BadInput if it finds a token in none."""
    for text in ("a", *tokenizer.get_vocab()):  # its vocabulary may have no "a"
        encoded = tokenizer(text)
        ids, sequences = encoded["input_ids"], encoded.sequence_ids()
        places = [index for index, sequence in enumerate(sequences) if sequence is not None]
        if places:
            return Frame(ids[: places[0]], ids[places[-1] + 1 :])
    raise BadInput("the tokenizer finds no token in any text")


def framed(tokenizer, template: str) -> Frame:
    """Return what a template adds to a text, inside the tokenizer's first and last special tokens.

    Each part of the template is tokenised by itself, with a leading space but no trailing one, as
    in the official code: RoBERTa's tokens begin with the space.

    Raises:
        BadInput: not exactly one `{text}`, more than one `{mask}`, or a `{mask}` and a tokenizer
            without a mask token.
    """
    parts = template.strip().split(TEXT)
    masks = template.count(MASK)
    if len(parts) != 2 or masks > 1 or (masks and tokenizer.mask_token_id is None):
        said = f"must contain {TEXT} once and {MASK} at most once"
        needs = f"{MASK} needs a tokenizer with a mask token"
        raise BadInput(f"the template '{template}' {said}; {needs}")
    names = ("cls_token_id", "bos_token_id", "sep_token_id", "eos_token_id")
    outer = {getattr(tokenizer, name) for name in names}
    plain, (before, after) = frame_of(tokenizer), (_ids(tokenizer, part) for part in parts)
    first = takewhile(outer.__contains__, plain.prefix)
    last = [*takewhile(outer.__contains__, plain.suffix[::-1])]
    return Frame([*first, *before], [*after, *last[::-1]])


def _ids(tokenizer, part: str) -> list[int]:
    ids: list[int] = []
    for number, piece in enumerate(part.split(MASK)):
        if number:
            ids.append(tokenizer.mask_token_id)
        if piece.rstrip():
            ids += tokenizer(piece.rstrip(), add_special_tokens=False)["input_ids"]
    return ids


def templated(tokenizer, template: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer that puts a template around every text, in place of what it adds.

    BadInput as in `framed`. It is of the library's base class, since others (`BertTokenizer`)
    ignore the post-processor of a saved tokenizer.
    """
    prefix, suffix = framed(tokenizer, template)
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())

    def part(name: str, ids: Iterable[int]) -> dict:
        return {"id": name, "ids": [*ids], "tokens": tokenizer.convert_ids_to_tokens([*ids])}

    added = [part("prefix", prefix), part("suffix", suffix)]
    backend.post_processor = processors.TemplateProcessing(
        "prefix $A suffix", "prefix $A suffix $B", added
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        split_special_tokens=True,
        **tokenizer.special_tokens_map,
    )


def mask_place(tokenizer) -> int | None:
    """Return the place of the mask in the template, see `Frame.position`; None without a mask."""
    return frame_of(tokenizer).position(tokenizer.mask_token_id) if tokenizer.is_fast else None
