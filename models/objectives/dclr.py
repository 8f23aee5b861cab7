"""DCLR: noise as negatives, and weight 0 for likely false negatives (arXiv 2205.00656).

Additional negatives are random vectors, moved by a few steps of gradient ascent to where the loss
is high. Negatives of the batch that are too similar to the sentence, by a second model's cosine and
a threshold, get weight 0. This model is a folder, or `self`: the trained encoder without dropout
(the paper's ablation).

    python run_unsup.py --config configs/dclr-bert-base.yaml
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from common.ranges import Positive, Share, Weight, flag
from models.contrast import cosines, info_nce
from models.objectives.base import Batch, Encoded, Method, MethodArguments, Objective, Term
from models.teacher import Teacher, load_teacher

NOISE_STEPS = 4  # of gradient ascent (code: pgd)
NOISE_RATE = 1e-3  # beta: length of a step (code)


@dataclass
class Arguments(MethodArguments):
    """DCLR's options; defaults are the official script's for bert-base, but for the complement."""

    temperature: Positive = flag(0.05, "tau: cosines are divided by it (script)")
    complement: str = flag(
        "self",
        "complementary model: folder or hub id with the same vocabulary (script: SimCSE), or self "
        "(ours)",
    )
    complement_pooling: str | None = flag(None, "its pooling; default: what its folder says")
    false_above: Share = flag(
        0.9, "phi: negatives with a higher cosine in the complementary model get weight 0 (script)"
    )
    noise_share: Weight = flag(1.0, "noise vectors per sentence of the batch (script)")


def standard_normal(seed: int, rows: int, like: Tensor) -> Tensor:
    """(rows, D) numbers with the width, dtype and device of `like`, (N, D)."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(rows, like.shape[1], dtype=like.dtype, generator=generator)
    return noise.to(like.device, non_blocking=True)


def ascended(
    noise: Tensor, query: Tensor, key: Tensor, temperature: float, steps: int, rate: float
) -> Tensor:
    """Move negatives, (M, D), up the gradient of InfoNCE: `steps` steps of length `rate`.

    Source: DCLR (arXiv 2205.00656) section 4.1; as in the code, the loss includes the batch's
    negatives.
    """
    query, key = query.detach(), key.detach()
    for _ in range(steps):
        noise = noise.requires_grad_()
        (gradient,) = torch.autograd.grad(info_nce(query, key, temperature, noise), noise)
        noise = (noise + rate * F.normalize(gradient, dim=-1)).detach()
    return noise


def binary_nce(logits: Tensor, negative: Tensor) -> Tensor:
    """Mean over all (i, j) of -log p_ii, and of -log(1 - p_ij) elsewhere; p is the rows' softmax.

    The logits, (N, K), have a sentence's partner on the diagonal; `negative` marks the negatives
    that count. The others take part with a logit of 0, as in the official code.
    """
    partner = torch.eye(*logits.shape, dtype=torch.bool, device=logits.device)
    log_p = torch.where(negative | partner, logits, 0.0).log_softmax(1)
    below_1 = log_p.masked_fill(partner, -1.0).clamp(max=-1e-7)
    return -torch.where(partner, log_p, torch.log(-torch.expm1(below_1))).mean()


class Debiased(Objective):
    """The loss over the batch's negatives, with weights, and noise."""

    reads_projection = True
    compares = True
    not_replayed = "its noise is drawn on the host"

    def __init__(self, args: Arguments, complement: Teacher) -> None:
        super().__init__()
        self.args = args
        self.complement = complement

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        args, (query, key) = self.args, encoded.projected
        drawn = standard_normal(batch.seed, int(len(query) * args.noise_share), query)
        noise = ascended(drawn, query, key, args.temperature, NOISE_STEPS, NOISE_RATE)
        logits = cosines(query, torch.cat([key, noise])) / args.temperature  # (N, N + M)
        negative = torch.ones_like(logits, dtype=torch.bool)
        negative[:, : len(key)] = self.complement.similarities(batch, encoded) <= args.false_above
        return {"contrastive": Term(binary_nce(logits, negative), 1.0)}


class DCLR(Method):
    """The debiased loss alone."""

    arguments = Arguments
    one_text = True

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        path, pooling = args.complement, args.complement_pooling
        return [Debiased(args, load_teacher(path, pooling, encoder, source.path))]


CITATION = """@misc{zhou2022dclr,
  title = {Debiased Contrastive Learning of Unsupervised Sentence Representations},
  author = {Zhou, Kun and Zhang, Beichen and Zhao, Wayne Xin and Wen, Ji-Rong},
  year = {2022}, eprint = {2205.00656}, archivePrefix = {arXiv}}"""
METHOD = DCLR(CITATION, published=("dclr-bert-base",))
