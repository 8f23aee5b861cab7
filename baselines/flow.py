"""BERT-flow (Li et al. 2020): fit a flow to the vectors of a frozen encoder by maximum likelihood.

Defaults are those of the released code (bohanli/BERT-flow), whose pooling `avg-last-2` adds layers
1 and last: here `avg_first_last`. Differences: no levels, and a constant learning rate.
"""

from dataclasses import dataclass
from typing import NamedTuple, get_type_hints

import torch
from torch import Tensor

from common.errors import NonFinite
from common.progress import progress
from common.ranges import Count, Positive, Seed, check_range, flag
from models.flow import Flow

SAMPLE = 8192  # vectors to initialise act-norm, and vectors scored at once


@dataclass(frozen=True)
class Settings:
    """How a flow is built and trained, with the released code's defaults."""

    steps: Count = flag(
        9, "blocks of act-norm, permutation and coupling: BERT-flow's 3 x 3, without its levels"
    )
    hidden: Count = flag(32, "width of the coupling networks")
    learning_rate: Positive = flag(1e-3, "for Adam")
    epochs: Count = flag(1, "passes over the text")
    batch_size: Count = flag(64, "sentences per step; BERT-flow has 32 pairs")
    seed: Seed = flag(42, "for permutations, initial weights and order")

    def __post_init__(self) -> None:
        for name, annotation in get_type_hints(Settings, include_extras=True).items():
            check_range(name, getattr(self, name), annotation)


class Trained(NamedTuple):
    """A flow, and its mean negative log likelihood in nats per sentence after initialisation and after training."""

    flow: Flow
    before: float
    after: float


def fit(vectors: Tensor, settings: Settings) -> Trained:
    """Train a flow on (N, D) vectors, on their device; the global random state does not change.

    Raises:
        NonFinite: the likelihood is not finite, as where a dimension of the vectors is constant.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        flow = Flow(vectors.shape[1], settings.steps, settings.hidden).to(vectors.device)
        flow.initialise(vectors[torch.randperm(len(vectors))[:SAMPLE].to(vectors.device)])
        before = mean_nll(flow, vectors)
        _train(flow, vectors, settings)
    return Trained(flow.eval(), before, mean_nll(flow, vectors))


def _train(flow: Flow, vectors: Tensor, settings: Settings) -> None:
    optimizer = torch.optim.Adam(flow.parameters(), lr=settings.learning_rate)
    steps = settings.epochs * -(-len(vectors) // settings.batch_size)
    with progress(steps, "flow", "step") as bar:
        for _ in range(settings.epochs):
            for rows in torch.randperm(len(vectors)).to(vectors.device).split(settings.batch_size):
                loss = -flow.log_likelihood(vectors[rows]).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                bar.update()


@torch.no_grad()
def mean_nll(flow: Flow, vectors: Tensor) -> float:
    """Mean negative log likelihood of (N, D) vectors in nats; NonFinite if it is not finite."""
    total = sum(float(flow.log_likelihood(block).double().sum()) for block in vectors.split(SAMPLE))
    mean = -total / len(vectors)
    if not torch.isfinite(torch.tensor(mean)):
        raise NonFinite(
            "the flow's likelihood is not finite: lower --learning_rate or, if an entry of all "
            "vectors is the same, "
            "give more text or another --pooling"
        )
    return mean
