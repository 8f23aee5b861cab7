"""SG-OPT: a frozen copy's layers guide the encoder's own [CLS] (Kim et al. 2021, arXiv 2106.07345).

For a sentence i the frozen copy gives h_ik, the mean over its tokens in layer k = 0 (embeddings) to
l; the trained encoder gives its pooled vector c_i. With s(a, b) = cos(f(a), f(b)) / temperature, f
being the projection head,

    loss = mean over i, k of -log( exp(s(c_i, h_ik)) / (exp(s(c_i, h_ik)) + Z_i) ),
    Z_i = sum over sentences m != i and layers n of exp(s(c_i, h_mn)) (their third optimisation)
    + lambda |theta - theta_0|^2,

theta_0 being the initial weights. Their simpler objectives (one layer drawn per sentence, other
denominators) are ablations and not implemented.

    python run_unsup.py --config configs/sg-opt-bert-base.yaml
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.ranges import Positive, Weight, flag
from models.collectives import gather_with_gradient
from models.contrast import at_least_float32, unit
from models.encoder import SentenceEncoder
from models.heads import project
from models.objectives.base import (
    Batch,
    Contrast,
    Encoded,
    Method,
    MethodArguments,
    Objective,
    Term,
)


@dataclass
class Arguments(MethodArguments):
    """SG-OPT's options; defaults are those of the paper and the official code."""

    temperature: Positive = flag(0.01, "tau (section 4.1 and the code)")
    distance_weight: Weight = flag(
        0.1, "lambda of the weights' squared distance from their initial values (code)"
    )


def guided_nt_xent(query: Tensor, guides: Tensor, temperature: float) -> Tensor:
    """Cross entropy of each of a sentence's guides against those of other sentences; float32.

    `query` are the sentences' vectors, (N, D); `guides` those of the frozen copy's K layers, (K, N,
    D).

    Source: SG-OPT section 3.2, the last of the three optimisations of NT-Xent: see the formula
    above.
    """
    with torch.autocast(query.device.type, enabled=False):
        logits = torch.einsum("nd,kmd->nkm", unit(query), unit(guides)) / temperature  # (N, K, N)
    matching = logits.diagonal(dim1=0, dim2=2).T  # (N, K)
    itself = torch.eye(len(query), dtype=torch.bool, device=query.device).unsqueeze(1)
    others = logits.masked_fill(itself, float("-inf")).flatten(1).logsumexp(1)  # (N,)
    return F.softplus(others.unsqueeze(1) - matching).mean()


def squared_distance(trained: nn.Module, initial: nn.Module) -> Tensor:
    """|theta - theta_0|^2 over the trained parameters, (); frozen ones would add zero."""
    parts = []
    for name, p in trained.named_parameters():
        if p.requires_grad:
            parts.append((p - initial.get_parameter(name)).square().sum())
    return torch.stack(parts).sum()


class SelfGuided(Contrast):
    """The contrastive loss against the frozen copy's layers, and the distance from its weights.

    The copy runs without dropout and stays in full precision, since the distance is measured from
    it.
    """

    def __init__(self, args: Arguments, initial: SentenceEncoder) -> None:
        super().__init__(partial(guided_nt_xent, temperature=args.temperature))
        self.start = initial.requires_grad_(False)  # its name in checkpoints
        self.args = args

    def train(self, mode: bool = True) -> SelfGuided:
        super().train(mode)
        self.start.eval()
        return self

    def vectors(self, encoded: Encoded, batch: Batch) -> tuple[Tensor, ...]:
        """The sentences' vectors, and those of the copy's layers."""
        query = encoded.projected.flatten(0, 1)  # (V N, D): all processes, view by view
        layers = self._layers(batch, encoded.chunk_size)
        return query, project(encoded.projection, layers)  # (K, V N, D)

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        terms = super().forward(encoded, batch)
        distance = squared_distance(encoded.encoder.backbone, self.start.backbone)
        return terms | {"distance": Term(distance, self.args.distance_weight)}

    @torch.no_grad()
    def _layers(self, batch: Batch, chunk_size: int | None) -> Tensor:
        """The copy's layer means for the sentences of all processes, (K, V N, H)."""
        parts = [self._means(chunk) for chunk in batch.split(chunk_size)]
        means = torch.cat(parts, 2)  # (K, V, B, H)
        everyone = gather_with_gradient(means.flatten(0, 1))  # (K V, N, H)
        return everyone.unflatten(0, (-1, means.shape[1])).flatten(1, 2)

    def _means(self, batch: Batch) -> Tensor:
        ids, mask = batch.input_ids.flatten(0, 1), batch.attention_mask.flatten(0, 1)
        means = self.start.layer_means(ids, mask)
        return at_least_float32(means).unflatten(1, batch.input_ids.shape[:2])


class SGOPT(Method):
    """Self-guided contrast."""

    arguments = Arguments
    copies = 1  # the frozen copy takes the place of a second view

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        initial = copy.deepcopy(encoder)
        words = encoder.backbone.get_input_embeddings()
        # Frozen as in the code; the paper does not say.
        getattr(encoder.backbone, "embeddings", words).requires_grad_(False)
        return [SelfGuided(args, initial)]


CITATION = """@misc{kim2021sgopt,
  title = {Self-Guided Contrastive Learning for {BERT} Sentence Representations},
  author = {Kim, Taeuk and Yoo, Kang Min and Lee, Sang-goo},
  year = {2021}, eprint = {2106.07345}, archivePrefix = {arXiv}}"""
METHOD = SGOPT(CITATION, published=("sg-opt-bert-base",))
