"""What every objective gets and gives."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor, nn

from common.errors import BadInput
from models.contrast import NO_NEGATIVES


@dataclass
class Batch:
    """A batch as the collator made it; None where the method asks for no such thing.

    Attributes:
        input_ids, attention_mask: (V, B, L).
        masked_input_ids, masked_labels: twins for masked language models, (number of masked views, B, L).
        rtd_input_ids, rtd_labels, rtd_uniforms: twins for replaced token detection, likewise.
        dropout_rates: (V, B, 1), or one for each of the backbone's O dropout operations, (V, B, O); NaN keeps its own.
        positions, kept: changed embeddings, (V, B, L) and (V, B, L, H), see `views.Perturbed`.
        labels: classes of the rows, (1, B).
    """

    input_ids: Tensor
    attention_mask: Tensor
    masked_input_ids: Tensor | None = None
    masked_labels: Tensor | None = None
    rtd_input_ids: Tensor | None = None
    rtd_labels: Tensor | None = None
    rtd_uniforms: Tensor | None = None
    dropout_rates: Tensor | None = None
    positions: Tensor | None = None
    kept: Tensor | None = None
    labels: Tensor | None = None

    def split(self, size: int | None) -> list[Batch]:
        """The same sentences in chunks of at most `size`; None: in one."""
        values = [getattr(self, field.name) for field in fields(self)]
        count = self.input_ids.shape[1]
        size = size or count
        cuts = range(0, count, size)
        return [Batch(*(None if v is None else v[:, cut : cut + size] for v in values)) for cut in cuts]


@dataclass
class Encoded:
    """A batch as the encoder sees it.

    Attributes:
        pooled: sentence vectors of this process, (V, B, H).
        cls: last hidden state of the first token, (V, B, H).
        projected: vectors of all processes behind the projection head, with gradient, (V, N, D); None where no
            objective reads them.
        encoder: what made them, for objectives that show it other tokens.
        projection: the head, None without one.
        own_projected: this process's rows of `projected`, (V, B, D); an objective with `tokens` reads no others.
        chunk_size: sentences that an objective may show to a network of its own at a time; None: all of the batch.
        tokens: last hidden states of all tokens of this process, (V, B, L, H), those of padding without meaning; None
            where no objective reads them.
    """

    pooled: Tensor
    cls: Tensor
    projected: Tensor | None
    encoder: nn.Module
    projection: nn.Module | None
    own_projected: Tensor | None = None
    chunk_size: int | None = None
    tokens: Tensor | None = None


class Term(NamedTuple):
    """One part of the loss: the raw value, which is logged, and its weight in the sum."""

    value: Tensor
    weight: float


class Objective(nn.Module):
    """A part of the training loss that owns the networks and buffers it needs beside the encoder.

    Attributes:
        reads_projection, reads_tokens: whether it reads these parts of `Encoded`.
        compares: whether it tells a batch's sentences from each other, so that one alone teaches nothing.
    """

    reads_projection = False
    reads_tokens = False
    compares = False

    def forward(self, encoded: Encoded, batch: Batch) -> dict[str, Term]:
        """Named terms of the loss for one batch."""
        raise NotImplementedError

    def check_batch(self, count: int) -> None:
        """BadInput where batches of `count` sentences, of all processes, are too small for the loss."""
        if self.compares and count < 2:
            raise BadInput(NO_NEGATIVES)

    def tokens(self, batch: Batch) -> Tensor | None:
        """How many tokens of the batch the loss is a mean over, (); None where it needs the batch as a whole.

        An objective that gives a number can be computed a few sentences at a time (`models.caching`): its terms are
        means over the tokens of all processes and look at no other sentence than the token's own.
        """
        return None

    def probe(self, encoded: Encoded, batch: Batch) -> dict[str, Tensor]:
        """What else is worth seeing at an evaluation, without gradient and on this process alone."""
        return {}

    def hold_frozen(self, dtype: torch.dtype) -> None:
        """Called once after building when training under autocast to `dtype`: what never learns may be cast now."""

    def after_step(self, encoder: nn.Module, projection: nn.Module | None) -> None:
        """Called once after every optimizer step."""


def refuse_projection(projection: nn.Module | None, method: str) -> None:
    """BadInput for a head that the method would leave aside."""
    if projection is not None:
        raise BadInput(f"{method} reads no projection head: give --projection none")
