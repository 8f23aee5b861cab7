"""S-SimCSE: sub-networks of random size, by dropout rates drawn at random (arXiv 2111.11750).

One rate per view and step, or, with the sentence-wise mask of section 3.2, per sentence; the same
for all dropout operations (section 3.1), or one per operation (section 1 and equation 4). Section
3.2 says that dropout stands only before fully connected layers; BERT's dropout of attention weights
does not, and `linear_only` leaves it alone. The loss is SimCSE's.

    python run_unsup.py --config configs/s-simcse-bert-base.yaml
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from scipy.stats import beta

from common.errors import BadInput
from common.ranges import Rate, flag
from data.views import Rates, View
from models.objectives import simcse
from models.objectives.base import Objective

SHAPE = (2.0, 2.0)  # of the beta distribution (ours)
LISTED = np.array([0.05, 0.1, 0.15])  # equally likely (ours)


@dataclass
class Arguments(simcse.Arguments):
    """Options of the rates: the paper names a distribution "e.g. uniform" and no bounds."""

    rate_distribution: Literal["uniform", "beta", "list"] = flag(
        "uniform",
        "uniform, or beta(2, 2), from rate_low to rate_high; list: 0.05, 0.1 or 0.15 (ours)",
    )
    rate_low: Rate = flag(0.0, "lowest dropout rate (ours: the mean is BERT's 0.1)")
    rate_high: Rate = flag(0.2, "highest dropout rate (ours)")
    per_sentence: bool = flag(False, 'one rate per sentence ("w/ sd" in Table 1)')
    per_operation: bool = flag(
        False, "one rate per dropout operation (section 1, equation 4); default: one for all"
    )
    linear_only: bool = flag(False, "attention weights keep the backbone's rate (section 3.2)")


def quantile(uniform: np.ndarray, args: Arguments) -> np.ndarray:
    """Map uniform numbers in [0, 1) to rates of the chosen distribution; same shape.

    With `linear_only` the last dimension is that of the dropout operations: NaN for those of
    attention weights, which come first in each layer.
    """
    if args.linear_only:
        if not args.per_operation:
            uniform = np.repeat(uniform[..., :1], uniform.shape[-1], axis=-1)
        rates = quantile(uniform, replace(args, linear_only=False))
        rates[..., 1::3] = np.nan
        return rates
    if args.rate_distribution == "list":
        return LISTED[(uniform * len(LISTED)).astype(int)]
    share = beta.ppf(uniform, *SHAPE) if args.rate_distribution == "beta" else uniform
    return args.rate_low + share * (args.rate_high - args.rate_low)


class SSimCSE(simcse.SimCSE):
    """SimCSE with sampled dropout rates."""

    arguments = Arguments

    def views(self, args: Arguments) -> list[View]:
        rates = Rates(
            partial(quantile, args=args), args.per_sentence, args.per_operation or args.linear_only
        )
        return [View(dropout=rates)] * 2

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        encoder.sample_dropout()
        expected = 1 + 3 * encoder.config.num_hidden_layers
        if args.linear_only and encoder.dropout_operations != expected:
            raise BadInput(
                "--linear_only: only for backbones with BERT's three dropout operations per layer"
            )
        return super().build(args, encoder, projection, source)


CITATION = """@misc{zhang2021ssimcse,
  title = {{S-SimCSE}: Sampled Sub-networks for Contrastive Learning of Sentence Embedding},
  author = {Zhang, Junlei and Lan, Zhenzhong},
  year = {2021}, eprint = {2111.11750}, archivePrefix = {arXiv}}"""
_SCORES = """s-simcse-bert-base s-simcse-sentence-bert-base s-simcse-bert-large
    s-simcse-sentence-bert-large s-simcse-roberta-base s-simcse-sentence-roberta-base"""
METHOD = SSimCSE(CITATION, published=_SCORES.split())
