"""Contrastive Tension: two encoders agree on equal, disagree on different sentences (ICLR 2021).

Two copies of the checkpoint are trained, without shared weights; the dot product of their vectors
predicts whether both saw the same sentence.

Different from the paper:
- It keeps the encoder that is better on the dev task. Here the first one is the artefact: by
  symmetry neither is better before training.
- A pair of different sentences comes from this batch: the second encoder sees the same sentences as
  the first, in another order. The paper draws 2K further sentences for every identical pair.
- Its learning rate is a staircase, see configs/ct-bert-base.yaml.
With --chunk_size the second encoder's whole graph stays in memory.

    python run_unsup.py --config configs/ct-bert-base.yaml
"""

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from common.errors import BadInput
from common.ranges import Count, flag
from models.collectives import gather_with_gradient
from models.contrast import at_least_float32
from models.encoder import SentenceEncoder
from models.objectives.base import Batch, Encoded, Method, MethodArguments, Objective, Term


@dataclass
class Arguments(MethodArguments):
    """The one option of the loss."""

    negatives: Count = flag(7, "K: pairs of different sentences per identical pair (paper)")


def pairing(count: int, negatives: int) -> tuple[Tensor, Tensor]:
    """Pair the rows of the encoders: the second's row for row i, and whether it is row i, (count,).

    In groups of 1 + `negatives` rows, the first row is paired with itself; the others, over all
    groups, with the next of them, the last with the first. Nothing is drawn, since the batch is
    random. BadInput if fewer than two rows are left for pairs of different sentences.
    """
    same = [row % (negatives + 1) == 0 for row in range(count)]
    others = [row for row in range(count) if not same[row]]
    if len(others) < 2:
        raise BadInput(
            f"--per_device_train_batch_size {count}: --negatives {negatives} leaves {len(others)} "
            "sentences for pairs of different ones, but 2 are needed; raise the batch size"
        )
    partners = dict(zip(others, others[1:] + others[:1], strict=True))
    return torch.tensor([partners.get(row, row) for row in range(count)]), torch.tensor(same)


def tension(first: Tensor, second: Tensor, same: Tensor) -> Tensor:
    """Binary cross entropy of "both are the same sentence" by the dot product; float32.

    loss = mean_i -[ y_i log sigma(a_i . b_i) + (1 - y_i) log(1 - sigma(a_i . b_i)) ]

    The sides of the pairs, a and b, are (N, H); `same` is y, (N,) bool.

    Source: Carlsson et al. 2021, section 3; the mean, not the sum, as in the official code.
    """
    with torch.autocast(first.device.type, enabled=False):
        logits = (at_least_float32(first) * at_least_float32(second)).sum(-1)
        return F.binary_cross_entropy_with_logits(logits, same.to(logits.dtype))


class ContrastiveTension(Objective):
    """The loss between the encoder and a second one, initially its copy."""

    def __init__(self, second: SentenceEncoder, negatives: int) -> None:
        super().__init__()
        self.second = second
        self.negatives = negatives
        # By batch size; kept, because a CUDA graph reads them again.
        self._pairs: dict[int, tuple[Tensor, Tensor]] = {}

    def check_batch(self, count: int) -> None:
        pairing(count, self.negatives)

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        ids, mask = batch.input_ids.flatten(0, 1), batch.attention_mask.flatten(0, 1)
        pooled = self.second(ids, mask).pooled.view_as(encoded.pooled)
        first, second = (
            gather_with_gradient(at_least_float32(side)).flatten(0, 1)
            for side in (encoded.pooled, pooled)
        )
        if len(first) not in self._pairs:
            partner, same = pairing(len(first), self.negatives)
            self._pairs[len(first)] = partner.to(first.device), same.to(first.device)
        partner, same = self._pairs[len(first)]
        return {"contrastive": Term(tension(first, second[partner], same), 1.0)}


class CT(Method):
    """Two encoders; no projection head."""

    arguments = Arguments
    copies = 1  # dropout is no augmentation here, and is off in the official code

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        return [ContrastiveTension(copy.deepcopy(encoder), args.negatives)]


CITATION = r"""@misc{carlsson2021ct, title = {Semantic Re-tuning with Contrastive Tension},
  author = {Carlsson, Fredrik and Gyllensten, Amaru Cuba and Gogoulou, Evangelia and Hellqvist, Erik
  Ylip{\"a}{\"a} and Sahlgren, Magnus},
  year = {2021}, note = {ICLR 2021}, url = {https://openreview.net/forum?id=Ov_sMNau-PF}}"""
METHOD = CT(CITATION, published=("ct-bert-base",))
