"""MoCo (He et al. 2019, arXiv 1911.05722): a slowly moving copy of the encoder, and a queue of its vectors."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from common.errors import StorageError
from common.packing import Grid
from models.loading import without_pooler
from models.precision import at_least_float32


class MomentumEncoder(nn.Module):
    """theta_k <- m theta_k + (1 - m) theta_q, once per optimizer step (equation 2).

    Args:
        encoder, projection: the modules to copy; `projection` may be None.
        momentum: m.
        mode: `train` keeps dropout on, `eval` off.
        init: `copy` starts from the encoder; `random` from new weights, which is what ESimCSE's published code did
            (it copied before the checkpoint was loaded).
    """

    def __init__(self, encoder: nn.Module, projection: nn.Module | None, momentum: float, mode: str, init: str) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder)
        self.projection = copy.deepcopy(projection)
        if init == "random":
            kind = type(encoder.backbone)
            fresh = kind(encoder.backbone.config, **without_pooler(kind))
            self.encoder.backbone.load_state_dict(fresh.state_dict())
        self.requires_grad_(False)
        self.momentum, self.mode = momentum, mode

    def train(self, mode: bool = True) -> MomentumEncoder:
        """Dropout as `mode` of the arguments says; batch norm of the copied head follows it too."""
        return super().train(mode and self.mode == "train")

    @torch.no_grad()
    def forward(self, input_ids: Tensor, attention_mask: Tensor, layout: Grid | None = None) -> Tensor:
        """(B, L) -> pooled vectors (B, H), in float32, before any head."""
        return at_least_float32(self.encoder(input_ids, attention_mask, layout=layout).pooled)

    @torch.no_grad()
    def follow(self, encoder: nn.Module, projection: nn.Module | None) -> None:
        """One step of the moving average; statistics of a batch norm are taken over as they are."""
        for slow, fast in ((self.encoder, encoder), (self.projection, projection)):
            if slow is None:
                continue
            for name, held in slow.named_parameters():
                held.lerp_(fast.get_parameter(name).to(held.dtype), 1 - self.momentum)
            for name, held in slow.named_buffers():
                held.copy_(fast.get_buffer(name))


class VectorQueue(nn.Module):
    """The last `size` vectors pushed, (size, width); empty at the start (section 3.2).

    The buffers are persistent: a resumed run finds its negatives. Every process must push the same rows.
    """

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        try:
            vectors = torch.zeros(size, width)
        except (RuntimeError, TypeError) as error:  # no memory; a number that torch has no size for
            raise StorageError(
                f"--queue_size {size}: so many vectors of {width} do not fit in memory; lower it"
            ) from error
        self.register_buffer("vectors", vectors)
        self.register_buffer("pushed", torch.zeros((), dtype=torch.long))  # in all, so the next place is its remainder
        self._held: int | None = 0  # how many are held; None where the buffers were loaded and nobody has looked

    def _load_from_state_dict(self, *args) -> None:
        super()._load_from_state_dict(*args)
        self._held = None

    def contents(self) -> Tensor:
        """What is held, (M, width) with M <= size, in the order of the buffer."""
        if self._held is None:
            self._held = min(int(self.pushed), len(self.vectors))  # once: later pushes are counted on the host
        return self.vectors[: self._held].clone()  # the next push must not change what a backward pass still needs

    @torch.no_grad()
    def push(self, rows: Tensor) -> None:
        """Append (N, width); the oldest give way. Of more rows than fit the last are kept."""
        size = len(self.vectors)
        skipped = max(0, len(rows) - size)
        kept = rows[skipped:].to(self.vectors.dtype)
        places = (self.pushed + skipped + torch.arange(len(kept), device=self.vectors.device)) % size
        self.vectors[places] = kept
        self.pushed += len(rows)
        self._held = None if self._held is None else min(self._held + len(rows), size)
