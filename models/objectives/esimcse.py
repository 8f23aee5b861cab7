"""ESimCSE: repeated words, so that views differ in length, and a momentum queue (Wu et al. 2021,
arXiv 2109.04380).

python run_unsup.py --config configs/esimcse-bert-base.yaml
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

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
    momentum_mode: Literal["train", "eval"] = flag("eval", "eval: dropout off, as in the code")
    queue_head: Literal["momentum", "online"] = flag(
        "online", "online: the trained head, as in the code"
    )
    repeat_rate: Rate = flag(0.32, "dup_rate: largest share to repeat (Table 8)")
    repeat_unit: Literal["subword", "word"] = flag("subword", "unit to repeat")
    repeat_count: Literal["code", "paper"] = flag(
        "code",
        "code: 0 to min(10, rate x length) - 1, with [CLS] and [SEP]; paper: 0 to max(2, rate x "
        "length) (section 3.1)",
    )


def repeat(
    ids: np.ndarray,
    starts: np.ndarray,
    generator: np.random.Generator,
    rate: float,
    unit: str,
    count: str,
) -> np.ndarray:
    """Repeat some units of a sentence in place: (L,) ids -> (L',) ids, L' >= L.

    As in the official code, a sentence's last word is never repeated, while its last subword may
    be.

    The number of units is drawn anew in every epoch (the official code draws once, when it
    tokenises). Sentences are truncated first, as in the official code with subwords, so that the
    longest ones grow too.
    """
    unit_of = (
        np.cumsum(starts) if unit == "word" else np.arange(len(ids))
    )  # pieces of a word share its number
    units = np.unique(unit_of)
    if count == "paper":
        drawn = generator.integers(0, max(2, int(rate * len(units))), endpoint=True)
    else:
        drawn = generator.integers(0, max(1, _below(len(units), rate, unit)))
        units = units[:-1] if unit == "word" else units
    chosen = generator.choice(units, size=min(drawn, len(units)), replace=False)
    again = np.flatnonzero(np.isin(unit_of, chosen))
    position = np.concatenate([np.arange(len(ids)), again])
    second = np.arange(len(position)) >= len(ids)
    return ids[position[np.lexsort((position, second, unit_of[position]))]]


def _below(count: int, rate: float, unit: str) -> int:
    """The exclusive bound of the number of repeated units in the official code, where subwords include special ones."""
    return (
        min(10, int(rate * (count + 2)))
        if unit == "subword"
        else min(10, count, max(2, int(rate * count)))
    )


class QueuedContrastive(moco.MomentumContrast):
    """InfoNCE between the views, with the momentum encoder's earlier vectors as further negatives (equation 4)."""

    def vectors(self, encoded: Encoded, batch: Batch) -> tuple[Tensor, ...]:
        """Both views and the queue before them; the momentum encoder's vectors of the first view are then queued."""
        queued = self.memory.queue.contents()
        self.memory.queue.push(self.memory.encode(batch, 0, encoded))
        return *encoded.projected, queued


class ESimCSE(moco.MoCo):
    """Repeated words and a momentum queue."""

    arguments = Arguments

    def views(self, args: Arguments) -> list[View]:
        edit = partial(
            repeat, rate=args.repeat_rate, unit=args.repeat_unit, count=args.repeat_count
        )
        return [View(), View(edit, words=args.repeat_unit == "word")]

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        return [QueuedContrastive(moco.Memory(args, encoder, projection), args.temperature)]


CITATION = """@misc{wu2021esimcse, title = {{ESimCSE}: Enhanced Sample Building Method for Contrastive Learning of
  Unsupervised Sentence Embedding},
  author = {Wu, Xing and Gao, Chaochen and Zang, Liangjun and Han, Jizhong and Wang, Zhongyuan and Hu, Songlin},
  year = {2021}, eprint = {2109.04380}, archivePrefix = {arXiv}}"""
METHOD = ESimCSE(
    CITATION,
    published=(
        "esimcse-bert-base",
        "esimcse-bert-large",
        "esimcse-roberta-base",
        "esimcse-roberta-large",
    ),
)
