"""SimCSE++: negatives without dropout; a contrast between dimensions (arXiv 2305.13192).

Dropout makes the positive of a sentence but adds noise to its negatives, so these come from a third
view without dropout. In addition, the dimensions of a batch's vectors are contrasted like
sentences, so that no two are redundant. Both terms see the sentences of all processes.

    python run_unsup.py --config configs/simcse-pp-bert-base.yaml
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from common.ranges import Positive, Weight, flag
from data.views import Rates, View
from models.contrast import at_least_float32, cosines
from models.objectives import simcse
from models.objectives.base import Contrast, Method, MethodArguments, Objective

CLEAN = View(dropout=Rates(np.zeros_like, per_sentence=False))  # dropout rate 0


@dataclass
class Arguments(MethodArguments):
    """SimCSE++'s options; defaults are the official script's for both parts together (899e49b)."""

    temperature: Positive = flag(0.05, "tau: cosines are divided by it (script)")
    off_dropout: bool = flag(True, "compute negatives without dropout; false: as SimCSE")
    positive_scale: Positive = flag(
        1.0, "factor of the positive's cosine with --off_dropout (script; 0.9 for it alone)"
    )
    dimension_weight: Weight = flag(0.1, "weight of the contrast of dimensions (code)")
    dimension_temperature: Positive = flag(
        5.0, "correlations are divided by it (code; 20 without --off_dropout)"
    )


def off_dropout_nce(
    first: Tensor, second: Tensor, clean: Tensor, temperature: float, scale: float
) -> Tensor:
    """Cross entropy of positives, with dropout, against negatives without; float32.

    loss = mean_i -log( exp(m s(a_i, b_i)) / (exp(m s(a_i, b_i)) + sum_{j != i} exp(s(c_i, c_j))) )

    where a and b are the views with dropout, c is the view without, (N, D) each, m is `scale`, and
    s(x, y) = cos(x, y) / temperature.

    Source: SimCSE++ (arXiv 2305.13192); the formula is that of the official code's first version
    (899e49b).
    """
    with torch.autocast(first.device.type, enabled=False):
        first, second = at_least_float32(first), at_least_float32(second)
        positive = scale * F.cosine_similarity(first, second, dim=-1) / temperature
    negatives = cosines(clean, clean) / temperature  # (N, N)
    itself = torch.eye(len(clean), dtype=torch.bool, device=clean.device)
    return F.softplus(negatives.masked_fill(itself, float("-inf")).logsumexp(1) - positive).mean()


def dimension_wise(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Cross entropy of picking each dimension's partner in the other view by correlation; float32.

    loss = mean_d -log( exp(C_dd / tau) / sum_e exp(C_de / tau) ),  C the (D, D) correlations over
    the batch

    The views are (N, D).

    Source: SimCSE++ (arXiv 2305.13192); as in the code, each view goes through a batch norm without
    affine.
    """
    with torch.autocast(first.device.type, enabled=False):
        first, second = (
            F.batch_norm(at_least_float32(view), None, None, training=True)
            for view in (first, second)
        )
        logits = first.T @ second / (len(first) * temperature)  # (D, D)
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


class SimCSEPlusPlus(Method):
    """SimCSE with one or both parts changed."""

    arguments = Arguments
    one_text = True

    def views(self, args: Arguments) -> list[View]:
        views = super().views(args)
        return [*views, CLEAN] if args.off_dropout else views

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        objectives: list[Objective] = [simcse.Contrastive(args.temperature)]
        if args.off_dropout:
            encoder.sample_dropout()
            loss = partial(off_dropout_nce, temperature=args.temperature, scale=args.positive_scale)
            objectives = [Contrast(loss)]
        if args.dimension_weight:
            loss = partial(dimension_wise, temperature=args.dimension_temperature)
            objectives.append(Contrast(loss, args.dimension_weight, "dimensions", views=2))
        return objectives


CITATION = """@misc{xu2023simcsepp,
  title = {{SimCSE++}: Improving Contrastive Learning for Sentence Embeddings from Two
  Perspectives},
  author = {Xu, Jiahao and Shao, Wei and Chen, Lihui and Liu, Lemao},
  year = {2023}, eprint = {2305.13192}, archivePrefix = {arXiv}}"""
METHOD = SimCSEPlusPlus(CITATION, published=("simcse-pp-bert-base",))
