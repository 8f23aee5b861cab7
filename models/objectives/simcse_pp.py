"""SimCSE++: negatives seen without dropout, and a contrast between dimensions (Xu et al. 2023, arXiv 2305.13192).

Dropout makes the positive of a sentence, and noise in its negatives: these are compared by a third view without
dropout. Beside it, the dimensions of a batch's vectors are told from each other as the sentences are, so that no two of
them say the same. In several processes both see the sentences of all.

    python run_unsup.py --config configs/simcse-pp-bert-base.yaml
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from common.ranges import Positive, Weight
from common.views import Rates, View
from models.contrast import cosines
from models.objectives import simcse
from models.objectives.base import Batch, Contrast, Encoded, Method, Objective, Term
from models.precision import at_least_float32

CLEAN = View(dropout=Rates(np.zeros_like, per_sentence=False))  # at rate 0


@dataclass
class Arguments:
    """SimCSE++'s options; defaults are those of the official script for both parts together."""

    _argument_group_name = "method"

    temperature: Positive = field(default=0.05, metadata={"help": "tau: cosines are divided by it (script)"})
    off_dropout: bool = field(default=True, metadata={"help": "compare negatives without dropout; false: as SimCSE"})
    positive_scale: Positive = field(
        default=1.0, metadata={"help": "factor of the positive's cosine with --off_dropout (script; 0.9 for it alone)"}
    )
    dimension_weight: Weight = field(default=0.1, metadata={"help": "weight of the contrast of dimensions (code)"})
    dimension_temperature: Positive = field(
        default=5.0, metadata={"help": "correlations are divided by it (code; 20 without --off_dropout)"}
    )


def off_dropout_nce(first: Tensor, second: Tensor, clean: Tensor, temperature: float, scale: float) -> Tensor:
    """Cross entropy of each sentence's positive, of two dropout masks, against negatives without dropout; float32.

    loss = mean_i -log( exp(m s(a_i, b_i)) / (exp(m s(a_i, b_i)) + sum_{j != i} exp(s(c_i, c_j))) )

    Args:
        first: a, a view with dropout, (N, D).
        second: b, the same sentences under another mask, (N, D).
        clean: c, the view without, (N, D).
        temperature: tau, s(x, y) = cos(x, y) / tau.
        scale: m.

    Source: SimCSE++ (arXiv 2305.13192); the formula is that of the official code.
    """
    with torch.autocast(first.device.type, enabled=False):
        positive = scale * F.cosine_similarity(at_least_float32(first), at_least_float32(second), dim=-1) / temperature
    negatives = cosines(clean, clean) / temperature  # (N, N)
    itself = torch.eye(len(clean), dtype=torch.bool, device=clean.device)
    return F.softplus(negatives.masked_fill(itself, float("-inf")).logsumexp(1) - positive).mean()


def dimension_wise(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Cross entropy of picking each dimension's own partner in the other view by their correlation; float32.

    loss = mean_d -log( exp(C_dd / tau) / sum_e exp(C_de / tau) ),  C the (D, D) correlations over the batch

    Args:
        first: one view, (N, D).
        second: the other, (N, D).
        temperature: tau.

    Source: SimCSE++ (arXiv 2305.13192), as coded: each view goes through a batch norm without affine.
    """
    with torch.autocast(first.device.type, enabled=False):
        one, two = (F.batch_norm(at_least_float32(view), None, None, training=True) for view in (first, second))
        logits = one.T @ two / (len(one) * temperature)  # (D, D)
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


class OffDropout(Contrast):
    """The contrastive loss, with the third view's cosines as negatives."""

    def __init__(self, temperature: float, scale: float) -> None:
        super().__init__()
        self.temperature, self.scale = temperature, scale

    def compare(self, first: Tensor, second: Tensor, clean: Tensor) -> Term:
        return Term(off_dropout_nce(first, second, clean, self.temperature, self.scale), 1.0)


class DimensionWise(simcse.Contrastive):
    """The contrast of dimensions between the two views with dropout."""

    term = "dimensions"

    def vectors(self, encoded: Encoded, batch: Batch) -> Sequence[Tensor]:
        return encoded.projected[:2].unbind(0)

    def compare(self, first: Tensor, second: Tensor) -> Term:
        return Term(dimension_wise(first, second, self.temperature), self.weight)


class SimCSEPlusPlus(Method):
    """SimCSE with one or both parts changed."""

    arguments = Arguments
    one_text = True

    def views(self, args: Arguments) -> list[View]:
        """Two that differ by dropout, and one without."""
        return [View(), View(), CLEAN] if args.off_dropout else [View(), View()]

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        """The contrastive loss and, with a weight, that of the dimensions."""
        made: list[Objective] = [simcse.Contrastive(args.temperature)]
        if args.off_dropout:
            encoder.sample_dropout()
            made = [OffDropout(args.temperature, args.positive_scale)]
        if args.dimension_weight:
            made.append(DimensionWise(args.dimension_temperature, args.dimension_weight))
        return made


METHOD = SimCSEPlusPlus()
