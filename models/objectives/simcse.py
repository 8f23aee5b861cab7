"""SimCSE: the same sentence twice, dropout as the only augmentation (Gao, Yao and Chen 2021, arXiv 2104.08821).

python run_unsup.py --config configs/simcse-bert-base.yaml
"""

from __future__ import annotations

from dataclasses import dataclass, field

from errors import BadInput
from models.contrast import info_nce
from models.encoder import SentenceEncoder
from models.objectives.base import Batch, Encoded, Objective, Term
from views import Masking, View


@dataclass
class Arguments:
    """Options of the contrastive loss."""

    _argument_group_name = "method"

    temperature: float = field(
        default=0.05, metadata={"help": "tau: cosines are divided by it (SimCSE section 3 and Table D.1)"}
    )


def views(args: Arguments) -> list[View]:
    """Two equal views; dropout makes them differ."""
    return [View(), View()]


def masking(args: Arguments) -> Masking | None:
    """Nothing is masked."""
    return None


class Contrastive(Objective):
    """InfoNCE of the first view against the second; a third column holds hard negatives (SimCSE equation 5)."""

    reads_projection = True

    def __init__(self, temperature: float, weight: float = 1.0) -> None:
        super().__init__()
        if temperature <= 0:
            raise BadInput(f"--temperature {temperature}: must be above 0")
        self.temperature = temperature
        self.weight = weight

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        query, key, *negatives = encoded.projected.unbind(0)
        hard = negatives[0] if negatives else None
        return {"contrastive": Term(info_nce(query, key, self.temperature, hard), self.weight)}


def build(args: Arguments, encoder: SentenceEncoder, source: str) -> list[Objective]:
    """The objectives of the method; `source` is the checkpoint the encoder came from."""
    return [Contrastive(args.temperature)]
