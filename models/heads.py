"""Projection heads between the pooled vector and the contrastive loss, and their form in a saved model.

Sources: linear-tanh from SimCSE section 3 (a new layer, not BERT's pooler); the batch-norm head from the
official InfoCSE and DiffCSE code (d -> 2d -> d without biases, batch norm and ReLU in the middle, batch norm
without affine parameters at the end), which the InfoCSE paper does not mention; the wide one (d -> 4096 -> 4096) from
SG-OPT (Kim et al. 2021, arXiv 2106.07345, and its code).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.errors import BadInput
from models.flow import Flow

WIDE = 4096  # of SG-OPT's head, whatever the encoder
ACTIVATIONS = ("Tanh", "ReLU", "Identity", "GELU", "Sigmoid")  # of torch.nn


class Dense(nn.Sequential):
    """One linear layer and its activation: the unit in which a kept head is saved."""

    def __init__(self, linear: nn.Linear, activation: str) -> None:
        if activation not in ACTIVATIONS:
            raise BadInput(f"activation '{activation}' of a Dense module is unknown: {', '.join(ACTIVATIONS)}")
        super().__init__(linear, getattr(nn, activation)())
        self.activation = activation


class Normalize(nn.Module):
    """Unit length, as sentence-transformers' module of that name."""

    def forward(self, vectors: Tensor) -> Tensor:
        return F.normalize(vectors, dim=-1)


class LinearTanh(nn.Module):
    """tanh(W x + b), (T, H) -> (T, H)."""

    def __init__(self, width: int, init_std: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.normal_(self.linear.weight, std=init_std)  # BERT's initialisation, as the official code gets it
        nn.init.zeros_(self.linear.bias)

    def forward(self, pooled: Tensor) -> Tensor:
        return torch.tanh(self.linear(pooled))

    def dense_layers(self) -> list[Dense]:
        return [Dense(self.linear, "Tanh")]


class BatchNormMLP(nn.Module):
    """Linear, batch norm, ReLU, linear, batch norm without affine: (T, H) -> (T, H).

    The batch statistics are those of the rows it is given, both views and all processes together.
    """

    def __init__(self, width: int, init_std: float) -> None:
        super().__init__()
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
    """What a saved encoder has behind its pooling, (T, H) -> (T, D): Dense modules, and a flow or Normalize or none."""

    @property
    def flow(self) -> Flow | None:
        return self[-1] if isinstance(self[-1], Flow) else None

    @property
    def normalizes(self) -> bool:
        return isinstance(self[-1], Normalize)

    def dense_layers(self) -> list[Dense]:
        """All but what stands at the end; BadInput for a module that saved format 1 has no place for."""
        dense = list(self)[: -1 if self.flow or self.normalizes else None]
        for module in dense:
            if not isinstance(module, Dense):
                raise BadInput(
                    f"a model with a module {type(module).__name__} behind its pooling cannot be saved in this "
                    "format; sentence-transformers, which has it, saves it as it is"
                )
        return dense


def _folded(linear: nn.Linear, norm: nn.BatchNorm1d) -> nn.Linear:
    """The linear layer that equals `linear` followed by `norm` in evaluation mode."""
    scale = torch.rsqrt(norm.running_var + norm.eps) * (norm.weight if norm.affine else 1.0)
    folded = nn.Linear(linear.in_features, linear.out_features)
    with torch.no_grad():
        folded.weight.copy_(linear.weight * scale[:, None])
        folded.bias.copy_(-norm.running_mean * scale + (norm.bias if norm.affine else 0.0))
    return folded


class WideMLP(nn.Module):
    """Two linear layers, each with a GELU behind it: (T, H) -> (T, 4096)."""

    def __init__(self, width: int, init_std: float) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, WIDE), nn.Linear(WIDE, WIDE)
        for linear in (self.inner, self.outer):
            nn.init.normal_(linear.weight, std=init_std)
            nn.init.zeros_(linear.bias)

    def forward(self, pooled: Tensor) -> Tensor:
        return F.gelu(self.outer(F.gelu(self.inner(pooled))))

    def dense_layers(self) -> list[Dense]:
        return [Dense(self.inner, "GELU"), Dense(self.outer, "GELU")]


def check_width(head: nn.Module | None, width: int) -> None:
    """BadInput for a head whose vectors are wider than the encoder's, where both stand beside each other."""
    if isinstance(head, WideMLP):
        raise BadInput(
            f"--projection wide_mlp: this method needs vectors of the encoder's width, {width}; choose another"
        )


PROJECTIONS = {"linear_tanh": LinearTanh, "batch_norm": BatchNormMLP, "wide_mlp": WideMLP}


def projection_named(name: str, width: int, init_std: float) -> nn.Module | None:
    """A new projection head; None for `none`."""
    if name == "none":
        return None
    if name not in PROJECTIONS:
        raise BadInput(f"projection '{name}' is unknown; choose from: none, {', '.join(PROJECTIONS)}")
    return PROJECTIONS[name](width, init_std)


def project(head: nn.Module | None, vectors: Tensor) -> Tensor:
    """(V, N, H) -> (V, N, D): all views through the head together, so that batch statistics are of both; float32."""
    return vectors if head is None else head(vectors.flatten(0, 1)).view(*vectors.shape[:2], -1)
