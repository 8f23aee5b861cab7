"""SimCSE: the same sentence twice, dropout as the only augmentation (Gao, Yao and Chen 2021, arXiv 2104.08821).

python run_unsup.py --config configs/simcse-bert-base.yaml
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

from common.ranges import Positive
from common.views import Masking, View
from models.contrast import info_nce
from models.encoder import SentenceEncoder
from models.objectives.base import Batch, Encoded, Objective, Term

COLUMNS = 3  # sentences of a row that are read: a sentence, its positive and a hard negative


@dataclass
class Arguments:
    """Options of the contrastive loss."""

    _argument_group_name = "method"

    temperature: Positive = field(
        default=0.05, metadata={"help": "tau: cosines are divided by it (SimCSE section 3 and Table D.1)"}
    )
    hard_negative_weight: float = field(
        default=0.0,
        metadata={"help": "log alpha: added to the logit of a sentence's own hard negative (rows of three; SimCSE B)"},
    )


def views(args: Arguments) -> list[View]:
    """Two equal views; dropout makes them differ."""
    return [View(), View()]


def masking(args: Arguments) -> tuple[Masking, ...]:
    """Nothing is masked."""
    return ()


class Contrastive(Objective):
    """InfoNCE of the first view against the second; a third column holds hard negatives (SimCSE equation 5)."""

    reads_projection = True
    compares = True

    def __init__(self, temperature: float, weight: float = 1.0, hard_negative_weight: float = 0.0) -> None:
        super().__init__()
        self.temperature = temperature
        self.weight = weight
        self.hard_negative_weight = hard_negative_weight

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        query, key, *negatives = encoded.projected.unbind(0)
        hard = negatives[0] if negatives else None
        own = self.hard_negative_weight if negatives else 0.0
        return {"contrastive": Term(info_nce(query, key, self.temperature, hard, own), self.weight)}


def build(args: Arguments, encoder: SentenceEncoder, projection: nn.Module | None, source: str) -> list[Objective]:
    """The objectives of the method; `source` is the checkpoint the encoder came from."""
    return [Contrastive(args.temperature, hard_negative_weight=args.hard_negative_weight)]
