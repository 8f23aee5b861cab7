"""Bag of words: predict the words of a text from its vector (Ma et al. 2024, arXiv 2401.11248).

There is no decoder between the vector and the words that could learn to ignore the vector.
`--bow_weight` adds the term to stage 1 and to any method.
"""

from __future__ import annotations

import torch
from torch import Tensor

from data.views import IGNORED
from models.auxiliary import TiedHead
from models.contrast import at_least_float32
from models.objectives.base import Batch, Encoded, Objective, Term, needed


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
    """The mean loss over the words of all views, through a masked language model's head."""

    reads_words = True

    def __init__(self, head: TiedHead, weight: float) -> None:
        super().__init__()
        self.head = head
        self.weight = weight

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        words = self.head.words(encoded.encoder.backbone)
        logits = words(self.head.transform(encoded.pooled.flatten(0, 1)))
        total, count = bag_of_words(logits, needed(batch.words).flatten(0, 1))
        return {"bow": Term(total, self.weight, count)}

    def tokens(self, batch: Batch) -> Tensor:
        return needed(batch.words).ne(IGNORED).sum()
