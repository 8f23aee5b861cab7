"""ESimCSE: repeated words, so that views differ in length; a momentum queue (arXiv 2109.04380).

python run_unsup.py --config configs/esimcse-bert-base.yaml
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor

from common.ranges import Count, Rate, flag
from data.views import View
from models.objectives import moco
from models.objectives.base import Batch, Encoded, Objective


@dataclass
class Arguments(moco.Arguments):
    """ESimCSE's options; defaults are those of the official code for bert-base."""

    queue_size: Count = flag(160, "2.5 batches of 64 (section 4.2 and the code)")
    momentum: Rate = flag(0.995, "momentum of the key encoder (section 4.2)")
    repeat_rate: Rate = flag(0.32, "dup_rate: largest share to repeat (Table 8)")


def repeat(
    ids: np.ndarray, starts: np.ndarray, generator: np.random.Generator, rate: float
) -> np.ndarray:
    """Repeat some subwords of a sentence in place: (L,) ids -> (L',) ids, L' >= L.

    As in the official code from 0 to min(10, rate x length) - 1 of them, where the length counts
    [CLS] and [SEP]. The number is drawn anew in every epoch (the official code draws once, when it
    tokenises). Sentences are truncated first, as there, so that the longest ones grow too.
    """
    drawn = int(generator.integers(0, max(1, min(10, int(rate * (len(ids) + 2))))))
    again = generator.choice(np.arange(len(ids)), size=min(drawn, len(ids)), replace=False)
    return np.repeat(ids, 1 + np.isin(np.arange(len(ids)), again))


class QueuedContrastive(moco.MomentumContrast):
    """InfoNCE between the views; earlier vectors of the momentum encoder are negatives."""

    def vectors(self, encoded: Encoded, batch: Batch) -> tuple[Tensor, ...]:
        """Both views and the queue before them; momentum vectors of the first are then queued."""
        queued = self.memory.queue.contents()
        self.memory.queue.push(self.memory.encode(batch, 0, encoded))
        return *encoded.projected, queued


class ESimCSE(moco.MoCo):
    """Repeated words and a momentum queue."""

    arguments = Arguments

    def views(self, args: Arguments) -> list[View]:
        return [View(), View(partial(repeat, rate=args.repeat_rate))]

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        memory = moco.Memory(args, encoder, projection, dropout=False, own_head=False)  # as coded
        return [QueuedContrastive(memory, args.temperature)]


CITATION = """@misc{wu2021esimcse,
  title = {{ESimCSE}: Enhanced Sample Building Method for Contrastive Learning of Unsupervised
  Sentence Embedding},
  author = {Wu, Xing and Gao, Chaochen and Zang, Liangjun and Han, Jizhong and Wang, Zhongyuan and
  Hu, Songlin},
  year = {2021}, eprint = {2109.04380}, archivePrefix = {arXiv}}"""
_SCORES = "esimcse-bert-base esimcse-bert-large esimcse-roberta-base esimcse-roberta-large"
METHOD = ESimCSE(CITATION, published=_SCORES.split())
