"""A slowly moving copy of the encoder: the key encoder of MoCo (He et al. 2019, arXiv 1911.05722, equation 2)."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from models.loading import without_pooler


class MomentumEncoder(nn.Module):
    """theta_k <- m theta_k + (1 - m) theta_q, once per optimizer step.

    Args:
        encoder, projection: what is copied; `projection` may be None.
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
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """(B, L) -> pooled vectors (B, H), in float32, before any head."""
        return self.encoder(input_ids, attention_mask).pooled.float()

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
