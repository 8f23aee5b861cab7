"""Projection heads between the pooled vector and the loss, and their form in a saved model.

Sources: linear-tanh from SimCSE section 3 (a new layer, not BERT's pooler); the batch-norm head
from the official InfoCSE and DiffCSE code (d -> 2d -> d without biases, batch norm and ReLU in the
middle, batch norm without affine parameters at the end), which the InfoCSE paper does not mention;
the wide one (d -> 4096 -> 4096) from SG-OPT (Kim et al. 2021, arXiv 2106.07345, and its code).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDE = 4096  # width of SG-OPT's head for any encoder
ACTIVATIONS = ("Tanh", "ReLU", "Identity", "GELU", "Sigmoid")  # names in torch.nn


class Dense(nn.Sequential):
    """One linear layer and its activation: the unit in which a kept head is saved."""

    def __init__(self, linear: nn.Linear, activation: str) -> None:
        super().__init__(linear, getattr(nn, activation)())
        self.activation = activation


class Normalize(nn.Module):
    """Scales vectors to unit length, like sentence-transformers' module of this name."""

    def forward(self, vectors: Tensor) -> Tensor:
        return F.normalize(vectors, dim=-1)


class LinearTanh(nn.Module):
    """tanh(W x + b), (T, H) -> (T, H)."""

    def __init__(self, width: int, init_std: float) -> None:
        super().__init__()
        self.width = width
        self.linear = nn.Linear(width, width)
        nn.init.normal_(self.linear.weight, std=init_std)  # BERT's, as in the official code
        nn.init.zeros_(self.linear.bias)

    def forward(self, pooled: Tensor) -> Tensor:
        return torch.tanh(self.linear(pooled))

    def dense_layers(self) -> list[Dense]:
        return [Dense(self.linear, "Tanh")]


class BatchNormMLP(nn.Module):
    """Linear, batch norm, ReLU, linear, batch norm without affine: (T, H) -> (T, H).

    The batch statistics are over all its input rows: both views, all processes.
    """

    def __init__(self, width: int, init_std: float) -> None:
        super().__init__()
        self.width = width
        self.inner = nn.Linear(width, 2 * width, bias=False)
        self.inner_norm = nn.BatchNorm1d(2 * width)
        self.outer = nn.Linear(2 * width, width, bias=False)
        self.outer_norm = nn.BatchNorm1d(width, affine=False)
        for linear in (self.inner, self.outer):
            nn.init.normal_(linear.weight, std=init_std)

    def forward(self, pooled: Tensor) -> Tensor:
        return self.outer_norm(self.outer(torch.relu(self.inner_norm(self.inner(pooled)))))

    def dense_layers(self) -> list[Dense]:
        folded = _folded(self.inner, self.inner_norm), _folded(self.outer, self.outer_norm)
        return [Dense(folded[0], "ReLU"), Dense(folded[1], "Identity")]


class Head(nn.Sequential):
    """The modules after a saved encoder's pooling, (T, H) -> (T, D): Dense, perhaps Normalize."""

    @property
    def normalizes(self) -> bool:
        return isinstance(self[-1], Normalize)

    def dense_layers(self) -> list[nn.Module]:
        """All modules before a final Normalize."""
        return list(self)[: -1 if self.normalizes else None]


def _folded(linear: nn.Linear, norm: nn.BatchNorm1d) -> nn.Linear:
    """Fold `norm`, in evaluation mode, into `linear`; return the equivalent linear layer."""
    assert norm.running_mean is not None and norm.running_var is not None
    scale = torch.rsqrt(norm.running_var + norm.eps) * (norm.weight if norm.affine else 1.0)
    # Without a random number.
    folded = nn.utils.skip_init(nn.Linear, linear.in_features, linear.out_features)
    with torch.no_grad():
        folded.weight.copy_(linear.weight * scale[:, None])
        folded.bias.copy_(-norm.running_mean * scale + (norm.bias if norm.affine else 0.0))
    return folded


class WideMLP(nn.Module):
    """Two linear layers, each followed by a GELU: (T, H) -> (T, 4096)."""

    def __init__(self, width: int, init_std: float) -> None:
        super().__init__()
        self.width = WIDE
        self.inner, self.outer = nn.Linear(width, WIDE), nn.Linear(WIDE, WIDE)
        for linear in (self.inner, self.outer):
            nn.init.normal_(linear.weight, std=init_std)
            nn.init.zeros_(linear.bias)

    def forward(self, pooled: Tensor) -> Tensor:
        return F.gelu(self.outer(F.gelu(self.inner(pooled))))

    def dense_layers(self) -> list[Dense]:
        return [Dense(self.inner, "GELU"), Dense(self.outer, "GELU")]


PROJECTIONS = {"linear_tanh": LinearTanh, "batch_norm": BatchNormMLP, "wide_mlp": WideMLP}


def projection_named(name: str, width: int, init_std: float) -> nn.Module | None:
    """Create a projection head; None for `none`."""
    return None if name == "none" else PROJECTIONS[name](width, init_std)


def projected_width(head: nn.Module | None, width: int) -> int:
    """D, the width of projected vectors, from H, that of the encoder's."""
    if head is not None:
        assert isinstance(head.width, int)
        return head.width
    return width


def project(head: nn.Module | None, vectors: Tensor) -> Tensor:
    """(V, N, H) -> (V, N, D) in float32; all views together, for common batch statistics."""
    if head is None:
        return vectors
    with torch.autocast(vectors.device.type, enabled=False):
        return head(vectors.flatten(0, 1)).view(*vectors.shape[:2], -1)
