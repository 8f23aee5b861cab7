"""Bag of words: the words of a text are predicted from its vector (Ma et al. 2024, arXiv 2401.11248).

No decoder stands between the vector and the words, so none can learn to do without the vector. Stage 1 adds the term to
its losses, `--bow_weight` to those of any method.
"""

from __future__ import annotations

import torch
from torch import Tensor

from common.errors import BadInput
from common.views import IGNORED
from models.auxiliary import TiedHead, load_masked_lm
from models.objectives.base import Batch, Encoded, Objective, Term
from models.precision import at_least_float32


def bag_of_words(logits: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of -log softmax(logits)[word] over the distinct words of each text, and their number.

    Args:
        logits: (B, vocabulary), from each text's vector.
        words: (B, L) ids, each word of a text once; IGNORED elsewhere.
    """
    real = words != IGNORED
    log_p = torch.log_softmax(at_least_float32(logits), dim=-1).gather(1, words.clamp(min=0))
    return -torch.where(real, log_p, 0.0).sum(), real.sum()


class BagOfWords(Objective):
    """The mean of the loss over the words of all views, from pooled vectors, by a masked language model's head."""

    reads_words = True

    def __init__(self, head: TiedHead, weight: float) -> None:
        super().__init__()
        self.head = head
        self.weight = weight

    @classmethod
    def of(cls, source: str, weight: float) -> BagOfWords:
        """With the head of a checkpoint; BadInput for one that has none."""
        try:
            return cls(TiedHead(load_masked_lm(source)), weight)
        except BadInput as error:
            raise BadInput(
                f"--bow_weight: the words are predicted by a masked language model's head; {error}"
            ) from error

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        logits = self.head.words(encoded.encoder.backbone)(self.head.transform(encoded.pooled.flatten(0, 1)))
        total, count = bag_of_words(logits, batch.words.flatten(0, 1))
        return {"bow": Term(total, self.weight, count)}

    def tokens(self, batch: Batch) -> Tensor:
        return (batch.words != IGNORED).sum()
