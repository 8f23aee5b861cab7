"""What a method asks of its data: the copies of a sentence it sees, and which of them get a masked twin.

Imports nothing of this project; `data` applies what a method in `models/objectives` declares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

IGNORED = -100  # label of a position that carries no loss


@dataclass(frozen=True)
class View:
    """One copy of a sentence.

    Attributes:
        edit: a pure function (token ids without special tokens, generator) -> token ids, applied by the collator;
            None leaves the sentence as it is, so that two views differ by dropout alone.
    """

    edit: Callable[[np.ndarray, np.random.Generator], np.ndarray] | None = None


@dataclass(frozen=True)
class Masking:
    """Which tokens are masked, and how.

    Attributes:
        rate: share of the tokens (special ones are never masked).
        recipe: `bert` replaces 80 % by the mask token, 10 % by a random one and keeps 10 % (Devlin et al. 2018,
            section 3.1); `mask` replaces all.
        whole_words: choose words, and with a word all of its pieces.
        views: the copies that get a masked twin, by position.
    """

    rate: float
    recipe: Literal["bert", "mask"] = "bert"
    whole_words: bool = False
    views: tuple[int, ...] = (0,)
