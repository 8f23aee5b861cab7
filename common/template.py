"""A template around every text: `This sentence of "{text}" means {mask}.` (PromptBERT, arXiv 2201.04337).

It is what the tokenizer adds, as [CLS] and [SEP] are. So a saved folder carries it, whoever reads the folder, and a
long text is cut within it. Such a tokenizer reads the name of a special token in a text as plain characters, so that
the template's mask is the only one.
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
    """Ids in front of a text and behind it, special ones included."""

    prefix: list[int]
    suffix: list[int]

    @property
    def added(self) -> int:
        """Number of tokens added to a text."""
        return len(self.prefix) + len(self.suffix)

    def place(self, token: int | None) -> int | None:
        """Where a token stands among those of any text: counted from 0, or from -1 behind the text; None: nowhere."""
        ids = self.prefix + self.suffix
        if token not in ids:
            return None
        found = ids.index(token)
        return found if found < len(self.prefix) else found - len(ids)


def frame_of(tokenizer) -> Frame:
    """What a fast tokenizer adds to a text; BadInput for one that drops every letter of the text it is asked by."""
    found = tokenizer("a")
    text = [place for place, sequence in enumerate(found.sequence_ids()) if sequence is not None]
    if not text:
        raise BadInput(
            f"'{tokenizer.name_or_path}': its tokenizer finds no token in 'a', so what it adds to a text is not known; "
            "use one with an unknown word or with Latin letters"
        )
    return Frame(found["input_ids"][: text[0]], found["input_ids"][text[-1] + 1 :])


def framed(tokenizer, template: str) -> Frame:
    """What a template adds to a text, within the tokenizer's own first and last special tokens.

    A part of the template is tokenised by itself, with the space in front of it but not with one behind it, as in the
    official code: RoBERTa's tokens have spaces in front.

    Raises:
        BadInput: not one `{text}`, more than one `{mask}`, or a `{mask}` for a tokenizer that has none.
    """
    parts = template.strip().split(TEXT)
    if len(parts) != 2 or template.count(MASK) > 1:
        raise BadInput(f"the template '{template}' needs {TEXT} once, and {MASK} not more than once")
    if MASK in template and tokenizer.mask_token_id is None:
        raise BadInput(f"the template '{template}' has a {MASK}, but this tokenizer has no mask token")
    names = ("cls_token_id", "bos_token_id", "sep_token_id", "eos_token_id")
    outer = {getattr(tokenizer, name) for name in names}
    own, (before, after) = frame_of(tokenizer), (_ids(tokenizer, part) for part in parts)
    first, last = takewhile(outer.__contains__, own.prefix), [*takewhile(outer.__contains__, own.suffix[::-1])]
    return Frame([*first, *before], [*after, *last[::-1]])


def _ids(tokenizer, part: str) -> list[int]:
    pieces = [tokenizer(piece, add_special_tokens=False)["input_ids"] if piece else []
              for piece in map(str.rstrip, part.split(MASK))]  # fmt: skip
    return pieces[0] + [id for piece in pieces[1:] for id in [tokenizer.mask_token_id, *piece]]


def templated(tokenizer, template: str) -> PreTrainedTokenizerFast:
    """A tokenizer that puts a template around every text, in place of what it adds; BadInput as `framed`.

    It is of the library's plain class, since others (`BertTokenizer`) do not read what a saved tokenizer adds.
    """
    prefix, suffix = framed(tokenizer, template)
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())

    def part(name: str, ids: Iterable[int]) -> dict:
        return {"id": name, "ids": [*ids], "tokens": tokenizer.convert_ids_to_tokens([*ids])}

    added = [part("prefix", prefix), part("suffix", suffix)]
    backend.post_processor = processors.TemplateProcessing("prefix $A suffix", "prefix $A suffix $B", added)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        split_special_tokens=True,
        **tokenizer.special_tokens_map,
    )


def mask_place(tokenizer) -> int | None:
    """Where the mask of the tokenizer's template stands, see `Frame.place`; None for a tokenizer that adds none."""
    return frame_of(tokenizer).place(tokenizer.mask_token_id) if tokenizer.is_fast else None
