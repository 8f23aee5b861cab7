"""An invertible flow on sentence vectors with a Gaussian base (BERT-flow: Li et al. 2020, arXiv
2011.05864).

The blocks are those of Glow (Kingma and Dhariwal 2018, arXiv 1807.03039) for plain vectors:
act-norm, permutation, coupling. As in BERT-flow, the permutation is fixed and random instead of a
learned 1x1 convolution, and the coupling is additive. Glow's multi-scale levels are left out.
"""

import math

import torch
from torch import Tensor, nn


class Step(nn.Module):
    """Act-norm, permutation, coupling: (N, D) -> (N, D) and log |det| of the Jacobian, (), the same
    for all vectors.

    Act-norm and coupling start as identities (the coupling's last layer is zero), as in Glow.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.parts = [
            width - width // 2,
            width // 2,
        ]  # entries kept, and entries transformed given the kept ones
        self.bias = nn.Parameter(torch.zeros(width))
        self.log_scale = nn.Parameter(torch.zeros(width))
        self.register_buffer("order", torch.randperm(width))
        last = nn.Linear(hidden, self.parts[1])
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.network = nn.Sequential(
            nn.Linear(self.parts[0], hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), last
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
        self.sizes = {"width": width, "steps": steps, "hidden": hidden}
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
        """The log density of each vector in nats, (N,): that of its latent vector plus log |det|."""
        latent, log_det = self.transform(vectors)
        return log_det - (latent.square().sum(1) + latent.shape[1] * math.log(2 * math.pi)) / 2

    @torch.no_grad()
    def initialise(self, vectors: Tensor) -> None:
        """Set every act-norm so that its output on these vectors, (N, D), has mean 0 and variance 1
        (Glow, 3.1).

        An entry that is constant over the vectors has no finite density: the likelihood becomes NaN
        or infinite.
        """
        for step in self.steps:
            deviation = vectors.std(0, correction=0)
            step.bias.copy_(-vectors.mean(0))
            step.log_scale.copy_(-deviation.log())
            vectors = step(vectors)[0]
