"""SimCSE: the same sentence twice, dropout as the only augmentation (arXiv 2104.08821).

python run_unsup.py --config configs/simcse-bert-base.yaml
"""

from dataclasses import dataclass

from torch import Tensor

from common.ranges import Positive, flag
from models.contrast import info_nce
from models.objectives.base import Contrast, Method, MethodArguments, Objective


@dataclass
class Arguments(MethodArguments):
    """Options of the contrastive loss."""

    temperature: Positive = flag(
        0.05, "tau: cosines are divided by it (SimCSE section 3 and Table D.1)"
    )
    hard_negative_weight: float = flag(
        0.0,
        "log alpha: added to the logit of a sentence's own hard negative (rows of three; SimCSE "
        "appendix B)",
    )


class Contrastive(Contrast):
    """InfoNCE of two views; a third column has hard negatives (SimCSE equation 5)."""

    def __init__(
        self, temperature: float, weight: float = 1.0, hard_negative_weight: float = 0.0
    ) -> None:
        def loss(query: Tensor, key: Tensor, hard: Tensor | None = None) -> Tensor:
            return info_nce(query, key, temperature, hard, hard_negative_weight)

        super().__init__(loss, weight)


class SimCSE(Method):
    """InfoNCE of two views; a row's second sentence is the positive, its third a hard negative."""

    arguments = Arguments
    columns = 3

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        return [Contrastive(args.temperature, hard_negative_weight=args.hard_negative_weight)]


CITATION = """@misc{gao2021simcse,
  title = {{SimCSE}: Simple Contrastive Learning of Sentence Embeddings},
  author = {Gao, Tianyu and Yao, Xingcheng and Chen, Danqi},
  year = {2021}, eprint = {2104.08821}, archivePrefix = {arXiv}}"""
_SCORES = "simcse-bert-base simcse-bert-large simcse-roberta-base simcse-roberta-large"
METHOD = SimCSE(CITATION, published=_SCORES.split())
