"""A method's requirements on its data: copies of a sentence, and which of them get a masked twin.

A method in `models/objectives` declares them and `data` applies them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

IGNORED = -100  # label of a position without a loss
MASK = -1  # stands for the mask token in an edit's result; the collator inserts its id


@dataclass(frozen=True)
class Rates:
    """Random dropout rates.

    Attributes:
        quantile: a pure function: uniform numbers in [0, 1) of any shape -> rates of that shape.
        per_sentence: one rate per sentence; otherwise one per view and step.
        per_operation: one rate per dropout operation of the network; otherwise one for all.
    """

    quantile: Callable[[np.ndarray], np.ndarray]
    per_sentence: bool
    per_operation: bool = False


class Perturbed(NamedTuple):
    """A perturbation of the embeddings of one sentence of n tokens.

    Attributes:
        positions: the new position of each token, (n,).
        kept: False where the embedding output is set to zero, (n, width).
    """

    positions: np.ndarray
    kept: np.ndarray


@dataclass(frozen=True)
class View:
    """One copy of a sentence.

    Attributes:
        edit: a pure function (token ids without special tokens, which of them start a word,
            generator) -> token ids, applied by the collator; None leaves the sentence unchanged, so
            two views differ by dropout alone. MASK in the result becomes the tokenizer's mask
            token.
        words: whether `edit` needs the word starts, which not every tokenizer provides; otherwise
            it gets None.
        cut: a pure function (the row's texts, each as token ids without special tokens; generator)
            -> token ids: the part of a document that the view shows, before `edit`. It sees whole
            documents. All cuts of an example get the same key, so views can agree on a draw. None
            shows the text itself, truncated at `max_length`.
        perturb: a pure function (number of tokens with special ones, width of an embedding,
            generator) -> Perturbed, called by the collator and applied by the encoder; None leaves
            the embeddings unchanged.
        dropout: draws this view's dropout rate in every step; None keeps the backbone's rate.
        target: the objective also gets the text before `edit`, which the encoder never reads.
        template: the template around the text, see `data.template`; None: what the tokenizer adds.
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
        rate: share of the tokens (special tokens, including the unknown token, are never masked).
        scheme: `bert` replaces 80 % by the mask token, 10 % by a random one and keeps 10 % (Devlin
            et al. 2018, section 3.1); `mask` replaces all.
        whole_words: mask all pieces of a word together.
        views: the views that get a masked twin, by position; None: all, whatever the number of
            sentences in a row.
        name: key of the twins in `Batch.twins`; the collator returns `NAME_input_ids` and
            `NAME_labels`.
        stop_words: how many of the text's most frequent tokens get no label; they are masked like
            the others.
    """

    rate: float
    scheme: Literal["bert", "mask"] = "bert"
    whole_words: bool = False
    views: tuple[int, ...] | None = (0,)
    name: str = "masked"
    stop_words: int = 0
