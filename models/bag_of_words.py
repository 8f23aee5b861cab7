"""Bag-of-words prediction: the words of a text from its vector alone (Ma et al. 2024, arXiv 2401.11248).

No decoder stands between the vector and the words, so none can learn to do without the vector.
"""

from __future__ import annotations

import torch
from torch import Tensor

from common.views import IGNORED


def bag_of_words(logits: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of -log softmax(logits)[word] over the distinct words of each text, and their number.

    Args:
        logits: (B, vocabulary), from each text's vector.
        words: (B, L) ids, each word of a text once; IGNORED elsewhere.
    """
    real = words != IGNORED
    log_p = torch.log_softmax(logits.float(), dim=-1).gather(1, words.clamp(min=0))
    return -torch.where(real, log_p, 0.0).sum(), real.sum()
