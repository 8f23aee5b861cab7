"""Momentum contrast on sentences: keys from a slowly moving encoder, negatives from a queue.

Source: MoCo (He et al. 2019, arXiv 1911.05722), made for images; there is no published text recipe, so the augmentation
is SimCSE's (dropout) and the temperature SimCSE's. Different from MoCo: the other keys of the batch are negatives
too, as in MoCo v3 and ESimCSE, so that the queue may start empty; batch norm is not shuffled, since the statistics of
our head are those of all processes.

    python run_unsup.py --config configs/moco-mini.yaml
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from common.ranges import Count, Rate
from common.views import View
from models.collectives import gather_rows, gather_with_gradient
from models.contrast import info_nce
from models.encoder import SentenceEncoder
from models.heads import check_width, project
from models.momentum import MomentumEncoder, VectorQueue
from models.objectives import simcse
from models.objectives.base import Batch, Contrast, Encoded, Objective, Term

GROWS = "the queue has another size in every step until it is full, and each would be compiled"


@dataclass
class Arguments(simcse.Arguments):
    """Options of the momentum encoder and its queue."""

    queue_size: Count = field(default=65536, metadata={"help": "keys that are kept as negatives (MoCo: 65536)"})
    momentum: Rate = field(default=0.999, metadata={"help": "m of the key encoder's moving average (MoCo: 0.999)"})
    momentum_mode: Literal["train", "eval"] = field(
        default="train", metadata={"help": "key encoder with dropout (train) or without (eval)"}
    )
    momentum_init: Literal["copy", "random"] = field(
        default="copy", metadata={"help": "key encoder starts as a copy, or from new weights"}
    )
    queue_head: Literal["momentum", "online", "none"] = field(
        default="momentum",
        metadata={"help": "head that projects the keys: its own moving average, the trained one, or none, when "
                  "pooled vectors are contrasted"},
    )  # fmt: skip


class Memory(nn.Module):
    """The key encoder and the queue of its vectors."""

    def __init__(self, args: Arguments, encoder: SentenceEncoder, projection: nn.Module | None) -> None:
        super().__init__()
        owned = projection if args.queue_head == "momentum" else None
        self.keys = MomentumEncoder(encoder, owned, args.momentum, args.momentum_mode, args.momentum_init)
        check_width(projection, encoder.config.hidden_size)
        self.queue = VectorQueue(args.queue_size, encoder.config.hidden_size)
        self.head = args.queue_head

    def encode(self, batch: Batch, view: int, encoded: Encoded) -> Tensor:
        """Keys of one view from all processes, without gradient, (N, D); `encoded.chunk_size` sentences at a time."""
        chunks = batch.split(encoded.chunk_size)
        parts = [self.keys(c.input_ids[view], c.attention_mask[view], c.layout((view,))) for c in chunks]
        pooled = gather_rows(torch.cat(parts))
        head = {"momentum": self.keys.projection, "online": encoded.projection, "none": None}[self.head]
        with torch.autocast(pooled.device.type, enabled=False):  # as the queries are projected
            return project(head, pooled[None])[0].detach()


class MomentumContrast(Contrast):
    """InfoNCE of sentences against the momentum encoder's keys, of the second of a pair, and the queue."""

    not_compiled = GROWS

    def __init__(self, memory: Memory, temperature: float) -> None:
        super().__init__()
        self.memory = memory
        self.reads_projection = memory.head != "none"
        self.temperature = temperature

    def groups(self, count: int) -> list[tuple[int, ...]]:
        return [(min(1, count - 1),)]

    def vectors(self, encoded: Encoded, batch: Batch) -> tuple[Tensor, ...]:
        """Queries, keys and what was queued before them; the keys are queued."""
        query = encoded.projected[0] if self.reads_projection else gather_with_gradient(encoded.pooled)[0]
        keys = self.memory.encode(batch, *self.groups(len(batch.input_ids))[0], encoded)
        queued = self.memory.queue.contents()
        self.memory.queue.push(keys)
        return query, keys, queued

    def compare(self, query: Tensor, keys: Tensor, queued: Tensor) -> Term:
        return Term(info_nce(query, keys, self.temperature, queued), 1.0)

    def after_step(self, encoder: nn.Module, projection: nn.Module | None) -> None:
        self.memory.keys.follow(encoder, projection)


class MoCo(simcse.SimCSE):
    """Momentum contrast; a row's second sentence is the positive."""

    arguments = Arguments
    columns = 2
    not_adapted = "its key encoder averages weights, and an average of A and one of B do not give that of B A"

    def views(self, args: Arguments) -> list[View]:
        """One: query and key are the same sentence, in two encoders."""
        return [View()]

    def build(self, args: Arguments, encoder, projection, source) -> list[Objective]:
        """One contrastive objective with a memory."""
        return [MomentumContrast(Memory(args, encoder, projection), args.temperature)]


METHOD = MoCo()
