"""Momentum contrast on sentences: keys from a slowly moving encoder, negatives from a queue.

Source: MoCo (He et al. 2019, arXiv 1911.05722), for images; there is no published training for
text, so augmentation (dropout) and temperature are SimCSE's. Different from MoCo: the other keys of
the batch are negatives too, as in MoCo v3 and ESimCSE, so the queue may start empty; batch norm is
not shuffled, since our head's statistics cover all processes.

    python run_unsup.py --config configs/moco-bert-base.yaml
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from common.ranges import Count, Rate, flag
from models.collectives import gather_rows
from models.contrast import at_least_float32, info_nce
from models.encoder import SentenceEncoder
from models.heads import project, projected_width
from models.objectives import simcse
from models.objectives.base import Batch, Contrast, Encoded, Objective


@dataclass
class Arguments(simcse.Arguments):
    """Options of the momentum encoder and its queue."""

    queue_size: Count = flag(65536, "keys kept as negatives (MoCo: 65536)")
    momentum: Rate = flag(0.999, "m of the key encoder's moving average (MoCo: 0.999)")


class MomentumEncoder(nn.Module):
    """theta_k <- m theta_k + (1 - m) theta_q, once per optimizer step (equation 2).

    It starts as a copy.
    """

    def __init__(
        self, encoder: nn.Module, projection: nn.Module | None, momentum: float, dropout: bool
    ) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder)
        self.projection = copy.deepcopy(projection)
        self.requires_grad_(False)
        self.momentum, self.dropout = momentum, dropout

    def train(self, mode: bool = True) -> MomentumEncoder:
        return super().train(mode and self.dropout)

    @torch.no_grad()
    def forward(self, input_ids: Tensor, attention_mask) -> Tensor:
        """(B, L) -> pooled vectors (B, H) in float32, before any head."""
        return at_least_float32(self.encoder(input_ids, attention_mask).pooled)

    @torch.no_grad()
    def follow(self, encoder: nn.Module, projection: nn.Module | None) -> None:
        """Take one step of the moving average; batch-norm statistics are copied."""
        for slow, fast in ((self.encoder, encoder), (self.projection, projection)):
            if slow is None or fast is None:
                continue
            for name, average in slow.named_parameters():
                average.lerp_(fast.get_parameter(name).to(average.dtype), 1 - self.momentum)
            for name, copied in slow.named_buffers():
                copied.copy_(fast.get_buffer(name))


class VectorQueue(nn.Module):
    """The last `size` vectors pushed, (size, width); empty at the start (section 3.2).

    The buffers are persistent: a resumed run keeps its negatives. Every process must push the same
    rows.
    """

    vectors: Tensor
    pushed: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(size, width))
        # Total count; modulo size, the next slot.
        self.register_buffer("pushed", torch.zeros((), dtype=torch.long))
        # Current number of vectors; None after loading the buffers, until read.
        self._held: int | None = 0

    def _load_from_state_dict(self, *args) -> None:
        super()._load_from_state_dict(*args)
        self._held = None

    @property
    def held(self) -> int:
        """The current number of vectors, M <= size."""
        if self._held is None:  # one device read: later pushes are counted here
            self._held = min(int(self.pushed), len(self.vectors))
        return self._held

    def contents(self) -> Tensor:
        """A copy of the current vectors, (M, width): the backward pass needs it after a push."""
        return self.vectors[: self.held].clone()

    @torch.no_grad()
    def push(self, rows: Tensor) -> None:
        """Append (N, width), overwriting the oldest; of more rows than fit, the last are kept.

        In evaluation mode, in which a probe runs, nothing is appended.
        """
        if not self.training:
            return
        size = len(self.vectors)
        skipped = max(0, len(rows) - size)
        kept = rows[skipped:].to(self.vectors.dtype)
        slots = (self.pushed + skipped + torch.arange(len(kept), device=self.vectors.device)) % size
        self.vectors[slots] = kept
        self.pushed += len(rows)
        self._held = None if self._held is None else min(self._held + len(rows), size)


class Memory(nn.Module):
    """The key encoder and the queue of its vectors.

    Args:
        args: the method's arguments.
        encoder, projection: of the queries.
        dropout: in the key encoder.
        own_head: keys go through a moving average of the head, not through the trained one.
    """

    def __init__(
        self,
        args: Arguments,
        encoder: SentenceEncoder,
        projection: nn.Module | None,
        dropout: bool = True,
        own_head: bool = True,
    ) -> None:
        super().__init__()
        owned = projection if own_head else None
        self.keys = MomentumEncoder(encoder, owned, args.momentum, dropout)
        width = projected_width(projection, encoder.config.hidden_size)
        self.queue = VectorQueue(args.queue_size, width)

    def encode(self, batch: Batch, view: int, encoded: Encoded) -> Tensor:
        """Keys of one view from all processes, (N, D), `encoded.chunk_size` sentences at a time."""
        chunks = batch.split(encoded.chunk_size)
        parts = [self.keys(c.input_ids[view], c.attention_mask[view]) for c in chunks]
        pooled = gather_rows(torch.cat(parts))
        head = encoded.projection if self.keys.projection is None else self.keys.projection
        return project(head, pooled[None])[0].detach()


class MomentumContrast(Contrast):
    """InfoNCE against the queue and the momentum encoder's keys (of a pair's second sentence)."""

    not_replayed = "its queue grows in every step until it is full"

    def __init__(self, memory: Memory, temperature: float) -> None:
        super().__init__(lambda query, keys, queued: info_nce(query, keys, temperature, queued))
        self.memory = memory

    def vectors(self, encoded: Encoded, batch: Batch) -> tuple[Tensor, ...]:
        """Queries, keys and the queue before them; the keys are then queued."""
        keys = self.memory.encode(batch, min(1, len(batch.input_ids) - 1), encoded)
        queued = self.memory.queue.contents()
        self.memory.queue.push(keys)
        return encoded.projected[0], keys, queued

    def after_step(self, encoder: nn.Module, projection: nn.Module | None) -> None:
        self.memory.keys.follow(encoder, projection)


class MoCo(simcse.SimCSE):
    """Momentum contrast; a row's second sentence is the positive."""

    arguments = Arguments
    copies = 1  # query and key are the same sentence, in two encoders
    columns = 2

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        return [MomentumContrast(Memory(args, encoder, projection), args.temperature)]


CITATION = """@misc{he2019moco,
  title = {Momentum Contrast for Unsupervised Visual Representation Learning},
  author = {He, Kaiming and Fan, Haoqi and Wu, Yuxin and Xie, Saining and Girshick, Ross},
  year = {2019}, eprint = {1911.05722}, archivePrefix = {arXiv}}"""
METHOD = MoCo(CITATION, simcse.CITATION)
