"""ConSERT: NT-Xent between two perturbed copies of a sentence's embeddings (arXiv 2105.11741).

python run_unsup.py --config configs/consert-bert-base.yaml
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from common.ranges import Positive, Rate, Weight, flag
from data.views import Perturbed, View
from models.contrast import nt_xent
from models.objectives.base import Contrast, Method, MethodArguments, Objective

EMBEDDING_DROPOUT = 0.2  # probability that a value is set to zero (section 4.1)
SPAN_CUTOFF = 0.15  # share of tokens outside the kept span (ours, as token_cutoff)
Change = Literal["none", "shuffle", "token_cutoff", "feature_cutoff", "dropout", "span"]


@dataclass
class Arguments(MethodArguments):
    """ConSERT's options; defaults are those of the official script for unsupervised bert-base."""

    view_1: Change = flag("feature_cutoff", "how to change the first copy (script, Figure 5)")
    view_2: Change = flag("shuffle", "how to change the second copy (script, Figure 5)")
    token_cutoff: Rate = flag(0.15, "share of tokens set to zero (section 4.1)")
    feature_cutoff: Rate = flag(0.2, "share of features set to zero (section 4.1)")
    temperature: Positive = flag(0.1, "tau: cosines are divided by it (section 4.1)")
    contrastive_weight: Weight = flag(0.15, "alpha; the code applies it even without another loss")


def perturb(
    count: int, width: int, generator: np.random.Generator, change: str, rate: float
) -> Perturbed:
    """Apply one change of section 3.2 to a sentence of `count` tokens, special ones included.

    Positions are permuted, or int(rate x n) whole rows or columns are set to zero, or single values
    at random, or all rows outside one span of max(int((1 - rate) x n), 1) tokens. The rest is not
    rescaled. The span is of the code only (transformers/modeling_bert.py, `_sample_span`, at
    8fe79b6), where the tokens outside become padding tokens.
    """
    positions, kept = np.arange(count), np.ones((count, width), dtype=bool)
    if change == "shuffle":
        positions = generator.permutation(count)
    elif change == "token_cutoff":
        kept[generator.choice(count, int(rate * count), replace=False)] = False
    elif change == "feature_cutoff":
        kept[:, generator.choice(width, int(rate * width), replace=False)] = False
    elif change == "dropout":
        kept = generator.random((count, width), dtype=np.float32) >= rate
    elif change == "span":
        length = max(int((1 - rate) * count), 1)
        start = generator.integers(count - length, endpoint=True)
        kept[:start] = kept[start + length :] = False
    return Perturbed(positions, kept)


def view(args: Arguments, change: str) -> View:
    """Return a view with one change."""
    if change == "none":
        return View()
    rates = {
        "shuffle": 1.0,
        "token_cutoff": args.token_cutoff,
        "feature_cutoff": args.feature_cutoff,
        "dropout": EMBEDDING_DROPOUT,
        "span": SPAN_CUTOFF,
    }
    return View(perturb=partial(perturb, change=change, rate=rates[change]))


def contrast(args: Arguments) -> Contrast:
    """The sum of the losses of both directions, as in the code: twice equation 1."""
    return Contrast(
        lambda first, second: 2.0 * nt_xent(first, second, args.temperature),
        args.contrastive_weight,
    )


class ConSERT(Method):
    """NT-Xent between two perturbed copies."""

    arguments = Arguments

    def views(self, args: Arguments) -> list[View]:
        return [view(args, args.view_1), view(args, args.view_2)]

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        return [contrast(args)]


CITATION = """@misc{yan2021consert,
  title = {{ConSERT}: A Contrastive Framework for Self-Supervised Sentence Representation Transfer},
  author = {Yan, Yuanmeng and Li, Rumei and Wang, Sirui and Zhang, Fuzheng and Wu, Wei and Xu,
  Weiran},
  year = {2021}, eprint = {2105.11741}, archivePrefix = {arXiv}}"""
METHOD = ConSERT(CITATION, published=("consert-bert-base", "consert-bert-large"))
