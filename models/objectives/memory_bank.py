"""Memory bank: negatives are vectors of other sentences as the encoder last made them.

Source: Wu et al. 2018 (arXiv 1805.01978), for images; MoCo (arXiv 1911.05722, figure 2b) compares
with it. K negatives are drawn from the bank for every batch (Wu et al.: for every sample); they
carry no gradient and are as old as an epoch. There is no published training for text: positive,
negatives of the batch, temperature and loss are SimCSE's, where Wu et al. compare a sample with its
own entry by noise-contrastive estimation and move an entry halfway to its new value. The bank keeps
the last `bank_size` vectors. In a run of at most one epoch this is an entry per sentence; after it,
a sentence can have two.

    python run_unsup.py --config configs/memory-bank-bert-base.yaml
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from common.ranges import Count, flag
from models.contrast import info_nce
from models.heads import projected_width
from models.objectives import moco, simcse
from models.objectives.base import Batch, Contrast, Encoded, Objective


@dataclass
class Arguments(simcse.Arguments):
    """Options of the bank."""

    negatives: Count = flag(4096, "K: number of negatives, drawn from the bank (Wu et al.: 4096)")
    bank_size: Count = flag(65536, "vectors in the bank (ours; Wu et al.: one per sample)")


def drawn(held: int, seed: int, count: int) -> np.ndarray:
    """Positions of `count` of `held` vectors, drawn without replacement; all if there are fewer."""
    if held <= count:
        return np.arange(held)
    return np.random.default_rng(seed).choice(held, count, replace=False)


class BankContrast(Contrast):
    """InfoNCE of two views and vectors from the bank, which the second views then enter."""

    not_replayed = "its bank grows in every step until it is full"

    def __init__(self, temperature: float, count: int, size: int, width: int) -> None:
        super().__init__(lambda query, keys, stored: info_nce(query, keys, temperature, stored))
        self.queue, self.count = moco.VectorQueue(size, width), count

    def vectors(self, encoded: Encoded, batch: Batch) -> tuple[Tensor, ...]:
        """Two views, and the drawn vectors from before this step."""
        query, keys = encoded.projected[:2]
        slots = torch.from_numpy(drawn(self.queue.held, batch.seed, self.count))
        stored = self.queue.vectors[slots.to(query.device, non_blocking=True)]
        self.queue.push(keys.detach())
        return query, keys, stored


class MemoryBank(simcse.SimCSE):
    """SimCSE with negatives from a memory bank; a row's second sentence is the positive."""

    arguments = Arguments
    columns = 2

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        width = projected_width(projection, encoder.config.hidden_size)
        return [BankContrast(args.temperature, args.negatives, args.bank_size, width)]


CITATION = """@misc{wu2018memory,
  title = {Unsupervised Feature Learning via Non-Parametric Instance-level Discrimination},
  author = {Wu, Zhirong and Xiong, Yuanjun and Yu, Stella and Lin, Dahua},
  year = {2018}, eprint = {1805.01978}, archivePrefix = {arXiv}}"""
METHOD = MemoryBank(CITATION, simcse.CITATION)
