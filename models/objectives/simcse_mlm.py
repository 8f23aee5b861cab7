"""SimCSE with a masked-language loss of the encoder itself (SimCSE 4; InfoCSE Tables 1 and 10).

Every sentence of a row is masked, the positive and the hard negative too, with one mean over the
masked tokens, as in SimCSE's code (train.py, `mask_tokens`, and simcse/models.py, `cl_forward`, at
206d7ae).

    python run_unsup.py --config configs/simcse-mlm-bert-base.yaml
"""

from dataclasses import dataclass

from torch import Tensor

from common.ranges import Share, Weight, flag
from data.views import Masking
from models.auxiliary import VocabularyHead
from models.objectives import simcse
from models.objectives.base import Batch, Encoded, Objective, Term


@dataclass
class Arguments(simcse.Arguments):
    """Options of the language model term."""

    mlm_weight: Weight = flag(
        0.1, "weight of the MLM loss (SimCSE: 0.1; InfoCSE Table 1: 0.01 to 1)"
    )
    mask_rate: Share = flag(0.15, "share of masked tokens (SimCSE's code)")


class MaskedTokens(Objective):
    """Cross entropy of the masked tokens; the vocabulary head is untied, as in the code."""

    def __init__(self, output: VocabularyHead, weight: float) -> None:
        super().__init__()
        self.output = output
        self.weight = weight

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        twin, encoder = batch.twins["masked"], encoded.encoder
        ids, mask = twin.input_ids.flatten(0, 1), batch.attention_mask.flatten(0, 1)
        states = encoder.states(ids, mask)
        total, count = self.output.token_loss(states, twin.labels.flatten(0, 1))
        return {"mlm": Term(total, self.weight, count)}

    def tokens(self, batch: Batch) -> Tensor:
        return batch.twins["masked"].count


class SimCSEWithMLM(simcse.SimCSE):
    """SimCSE and a masked language model loss."""

    arguments = Arguments

    def masking(self, args: Arguments) -> tuple[Masking, ...]:
        return (Masking(args.mask_rate, views=None),)

    def most_columns(self, args: Arguments) -> int:
        return self.columns

    def reads_output(self, args: Arguments) -> bool:
        return True

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        output = VocabularyHead(source.model)
        return [
            *super().build(args, encoder, projection, source),
            MaskedTokens(output, args.mlm_weight),
        ]


METHOD = SimCSEWithMLM(
    simcse.CITATION, published=("simcse-mlm-bert-base", "simcse-mlm-roberta-base")
)
