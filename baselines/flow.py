"""BERT-flow (Li et al. 2020, arXiv 2011.05864): an invertible map to Gaussian vectors.

It is fitted to the vectors of a frozen encoder by maximum likelihood. The blocks are those of Glow
(Kingma and Dhariwal 2018, arXiv 1807.03039) for plain vectors: act-norm, permutation, coupling. As
in BERT-flow the permutation is fixed and random instead of a learned 1x1 convolution, and the
coupling is additive. Defaults are those of the released code (bohanli/BERT-flow), whose pooling
`avg-last-2` adds layers 1 and last: here `avg_first_last`. Differences: no multi-scale levels, and
a constant learning rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn

from common.errors import NonFinite
from common.progress import progress
from common.ranges import Count, Positive, Seed, check_range, flag

SAMPLE = 8192  # vectors to initialise act-norm, and vectors computed at once


@dataclass(frozen=True)
class Settings:
    """How a flow is built and trained, with the released code's defaults."""

    steps: Count = flag(9, "blocks of act-norm, permutation, coupling: BERT-flow's 3 x 3")
    hidden: Count = flag(32, "width of the coupling networks")
    learning_rate: Positive = flag(1e-3, "for Adam")
    epochs: Count = flag(1, "passes over the text")
    batch_size: Count = flag(64, "sentences per step; BERT-flow has 32 pairs")
    seed: Seed = flag(42, "for permutations, initial weights and order")

    def __post_init__(self) -> None:
        for name, annotation in get_type_hints(Settings, include_extras=True).items():
            check_range(f"--{name}", getattr(self, name), annotation)


class Step(nn.Module):
    """Act-norm, permutation, coupling: (N, D) -> (N, D) and log |det| of the Jacobian, ().

    The determinant is the same for all vectors. Act-norm and coupling start as identities (the
    coupling's last layer is zero), as in Glow.
    """

    order: Tensor

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        changed = width // 2  # entries that are transformed, given the others
        self.parts = [width - changed, changed]
        self.bias = nn.Parameter(torch.zeros(width))
        self.log_scale = nn.Parameter(torch.zeros(width))
        self.register_buffer("order", torch.randperm(width))
        last = nn.Linear(hidden, changed)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.network = nn.Sequential(
            nn.Linear(width - changed, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            last,
        )

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        normed = (vectors + self.bias) * self.log_scale.exp()
        kept, changed = normed[:, self.order].split(self.parts, dim=1)
        latent = torch.cat([kept, changed + self.network(kept)], dim=1)
        return latent, self.log_scale.sum()


class Flow(nn.Module):
    """Maps sentence vectors to latent vectors whose distribution is close to a standard Gaussian.

    `steps` blocks, whose networks have two hidden layers of width `hidden`.
    """

    def __init__(self, width: int, steps: int, hidden: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList(Step(width, hidden) for _ in range(steps))

    def forward(self, vectors: Tensor) -> Tensor:
        """Sentence vectors (N, D) -> latent vectors (N, D)."""
        return self.transform(vectors)[0]

    def transform(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Latent vectors, (N, D), and log |det d latent / d vector|, ()."""
        total = vectors.new_zeros(())
        for step in self.steps:
            vectors, log_det = step(vectors)
            total = total + log_det
        return vectors, total

    def log_likelihood(self, vectors: Tensor) -> Tensor:
        """The log density of each vector in nats, (N,): its latent vector's plus log |det|."""
        latent, log_det = self.transform(vectors)
        return log_det - (latent.square().sum(1) + latent.shape[1] * math.log(2 * math.pi)) / 2

    @torch.no_grad()
    def initialise(self, vectors: Tensor) -> None:
        """Give every act-norm's output on these vectors, (N, D), mean 0 and variance 1 (Glow, 3.1).

        An entry that is constant over the vectors has no finite density: the likelihood becomes NaN
        or infinite.
        """
        for step in self.steps:
            deviation = vectors.std(0, correction=0)
            step.bias.copy_(-vectors.mean(0))
            step.log_scale.copy_(-deviation.log())
            vectors = step(vectors)[0]

    @torch.no_grad()
    def mean_nll(self, vectors: Tensor) -> float:
        """Mean negative log likelihood of (N, D) vectors in nats; NonFinite if it is not finite."""
        total = 0.0
        for block in vectors.split(SAMPLE):
            total -= float(self.log_likelihood(block).double().sum())
        if not math.isfinite(total):
            raise NonFinite(
                "the flow's likelihood is not finite: lower --learning_rate or, if an entry of all "
                "vectors is the same, give more text or another --pooling"
            )
        return total / len(vectors)

    @torch.no_grad()
    def latent(self, vectors: np.ndarray) -> np.ndarray:
        """The latent vectors, (N, D) float32, of sentence vectors (N, D)."""
        blocks = torch.from_numpy(vectors).split(SAMPLE)
        device = self.steps[0].bias.device
        return torch.cat([self(block.to(device)).cpu() for block in blocks]).numpy()


class Fitted(NamedTuple):
    """A flow, and its mean negative log likelihood in nats a sentence before and after training."""

    flow: Flow
    before: float
    after: float


def fit(vectors: Tensor, settings: Settings) -> Fitted:
    """Train a flow on (N, D) vectors, on their device; the global random state does not change.

    Raises:
        NonFinite: the likelihood is not finite, as where a dimension of the vectors is constant.
    """
    with torch.random.fork_rng([vectors.device] if vectors.is_cuda else []):
        torch.manual_seed(settings.seed)
        flow = Flow(vectors.shape[1], settings.steps, settings.hidden).to(vectors.device)
        flow.initialise(vectors[torch.randperm(len(vectors))[:SAMPLE].to(vectors.device)])
        before = flow.mean_nll(vectors)
        _train(flow, vectors, settings)
    return Fitted(flow.eval(), before, flow.mean_nll(vectors))


def _train(flow: Flow, vectors: Tensor, settings: Settings) -> None:
    optimizer = torch.optim.Adam(flow.parameters(), lr=settings.learning_rate)
    steps = settings.epochs * -(-len(vectors) // settings.batch_size)
    with progress(steps, "flow", "step") as bar:
        for _ in range(settings.epochs):
            order = torch.randperm(len(vectors)).to(vectors.device)
            for rows in order.split(settings.batch_size):
                loss = -flow.log_likelihood(vectors[rows]).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                bar.update()
