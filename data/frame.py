"""What a tokenizer adds to a sentence."""

from __future__ import annotations

from typing import NamedTuple


class Frame(NamedTuple):
    """What a tokenizer puts around a sentence, and its special ids."""

    prefix: list[int]
    suffix: list[int]
    pad: int
    mask: int | None
    special: list[int]
    vocabulary: int

    @property
    def size(self) -> int:
        return len(self.prefix) + len(self.suffix)

    @classmethod
    def of(cls, tokenizer) -> Frame:
        """Read off the tokenizer by framing one word."""
        word = tokenizer("a", add_special_tokens=False)["input_ids"]
        framed = tokenizer("a")["input_ids"]
        start = next(i for i in range(len(framed)) if framed[i : i + len(word)] == word)
        return cls(
            framed[:start],
            framed[start + len(word) :],
            tokenizer.pad_token_id,
            tokenizer.mask_token_id,
            tokenizer.all_special_ids,
            len(tokenizer),
        )
