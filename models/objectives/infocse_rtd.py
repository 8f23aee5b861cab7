"""InfoCSE with replaced token detection (InfoCSE section 6.3 and Table 12).

The paper gives no values for the combination; ours are InfoCSE's and DiffCSE's own, with a masked
twin for each.

    python run_unsup.py --config configs/infocse-rtd-bert-base.yaml
"""

from dataclasses import dataclass

from data.views import Masking
from models.objectives import diffcse, infocse
from models.objectives.base import Objective


@dataclass
class Arguments(infocse.Arguments, diffcse.Arguments):
    """Both methods' options."""


class InfoCSEWithRTD(infocse.InfoCSE):
    """InfoCSE and DiffCSE's detection loss."""

    arguments = Arguments  # type: ignore[assignment]  # its fields are in another order

    def masking(self, args: Arguments) -> tuple[Masking, ...]:
        return (*super().masking(args), *diffcse.METHOD.masking(args))

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        detector = diffcse.detector(args, encoder, projection, source)
        return [*super().build(args, encoder, projection, source), detector]


METHOD = InfoCSEWithRTD(infocse.CITATION, diffcse.CITATION, published=("infocse-rtd-bert-base",))
