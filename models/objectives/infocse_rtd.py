"""InfoCSE with replaced token detection beside the auxiliary language model (InfoCSE section 6.3 and Table 12).

The paper gives no values for the combination; ours are InfoCSE's and DiffCSE's own, with a masked twin for each.

    python run_unsup.py --config configs/infocse-rtd-bert-base.yaml
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from common.views import Masking, View
from models.encoder import SentenceEncoder
from models.objectives import diffcse, infocse
from models.objectives.base import Objective


@dataclass
class Arguments(infocse.Arguments, diffcse.Arguments):
    """Both methods' options."""


def views(args: Arguments) -> list[View]:
    """Two equal views."""
    return infocse.views(args)


def masking(args: Arguments) -> tuple[Masking, ...]:
    """A twin for the language model and one for the generator."""
    return (*infocse.masking(args), *diffcse.masking(args))


def build(args: Arguments, encoder: SentenceEncoder, projection: nn.Module | None, source: str) -> list[Objective]:
    """InfoCSE's objectives and the detection loss."""
    return [*infocse.build(args, encoder, projection, source), diffcse.detector(args, encoder, projection)]
