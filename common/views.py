"""What a method asks of its data: the copies of a sentence it sees, and which of them get a masked twin.

Imports nothing of this project; `data` applies what a method in `models/objectives` declares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

IGNORED = -100  # label of a position that carries no loss
MASK = -1  # what an edit writes for the mask token, whose id the collator knows


@dataclass(frozen=True)
class Rates:
    """Dropout rates as random numbers.

    Attributes:
        quantile: a pure function: uniform numbers in [0, 1) of any shape -> rates of that shape.
        per_sentence: a rate a sentence; else one for all sentences of a view in a step.
        per_operation: a rate for every place of the network that drops; else one for all.
    """

    quantile: Callable[[np.ndarray], np.ndarray]
    per_sentence: bool
    per_operation: bool = False


class Perturbed(NamedTuple):
    """What happens to the embeddings of one sentence of n tokens.

    Attributes:
        positions: the position that each token is given, (n,).
        kept: False where the embedding output becomes zero, (n, width).
    """

    positions: np.ndarray
    kept: np.ndarray


@dataclass(frozen=True)
class View:
    """One copy of a sentence.

    Attributes:
        edit: a pure function (token ids without special tokens, which of them start a word, generator) -> token ids,
            applied by the collator; None leaves the sentence as it is, so that two views differ by dropout alone. MASK
            among the ids it returns becomes the tokenizer's mask token.
        words: whether `edit` looks at words, which not every tokenizer tells; it gets None otherwise.
        cut: a pure function (the row's texts, each as token ids without special tokens; generator) -> token ids: the
            part of a document that the view shows, before `edit`. It sees whole documents. All cuts of an example get
            one key, so that views can agree on a draw. None shows the text itself, cut off at `max_length`.
        perturb: a pure function (number of tokens with special ones, width of an embedding, generator) -> Perturbed,
            called by the collator and applied by the encoder; None leaves the embeddings as they are.
        dropout: draws this view's dropout rate in every step; None keeps the backbone's own.
        target: the objective also gets the text as it was before `edit`, which the encoder never reads.
        template: what stands around the text, see `common.template`; None: what the tokenizer adds.
    """

    edit: Callable[[np.ndarray, np.ndarray | None, np.random.Generator], np.ndarray] | None = None
    perturb: Callable[[int, int, np.random.Generator], Perturbed] | None = None
    dropout: Rates | None = None
    words: bool = False
    cut: Callable[[list[np.ndarray], np.random.Generator], np.ndarray] | None = None
    target: bool = False
    template: str | None = None


@dataclass(frozen=True)
class Masking:
    """Which tokens are masked, and how.

    Attributes:
        rate: share of the tokens (special tokens, among them the unknown word, are never masked).
        recipe: `bert` replaces 80 % by the mask token, 10 % by a random one and keeps 10 % (Devlin et al. 2018,
            section 3.1); `mask` replaces all.
        whole_words: choose words, and with a word all of its pieces.
        views: the copies that get a masked twin, by position.
        name: of the twins in `Batch.twins`; the collator calls them `NAME_input_ids`, `NAME_labels`.
        uniforms: also draw a number in [0, 1) for every position, `NAME_uniforms`, for a generator that samples.
    """

    rate: float
    recipe: Literal["bert", "mask"] = "bert"
    whole_words: bool = False
    views: tuple[int, ...] = (0,)
    name: str = "masked"
    uniforms: bool = False
