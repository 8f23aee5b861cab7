"""A batch without its padding: a backbone's own layers run on the real tokens only.

The sentences of a batch are concatenated in one row, (1, N, H). Embeddings, projections,
feed-forward and norms work per token, so they run on that row unchanged; only attention scatters
queries, keys and values to the padded grid, in the function registered here with transformers. A
layer may compute its output at some tokens only, from the keys and values of all.

Dropout masks have other shapes than in the padded call: the same distribution, another random
stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from data.views import IGNORED
from models.families import embed, family_of
from models.fast.kernels import on_cpu
from models.fast.kernels.dropout import SampledDropout, attend, backward_is_slow
from models.fast.kernels.vocabulary_loss import vocabulary_loss
from models.fast.packing import EDGE, filled, fixed_number, places, up
from models.fast.padded import (
    SAMPLED,
    Labelled,
    Layers,
    Padded,
    States,
    earlier,
    ready_mask,
)

NAME = "packed"


@dataclass(frozen=True)
class Packed(Padded):
    """Runs layers on N tokens of a batch (B, L), in a grid of B rows and `length` columns.

    They are the real tokens and the first padding positions, as many as make N a round number. As
    in the padded call, padding positions attend but are not attended to, and no loss or pooling
    reads them.

    Attributes:
        batch, columns: B and L.
        length: L rounded up to a multiple of EDGE.
        slots: the index of each token in the flattened grid, ascending, (N,).
        source: its index in the flattened mask, where columns beyond the mask count as the last
            one, (N,).
        first: the index of each sentence's first token among the N, (B,).
        queries: the grid indices of the tokens that attend; `slots`, or a part of them.
        keys: which grid positions are attended to, (B or 1, 1, 1 or length, length), see
            `ready_mask`; None for all.
        seen: if only some tokens attend, the states of all, (1, N, H), for keys and values;
            otherwise None.
        rates: dropout rates of the sentences, (B, O), see `models.fast.kernels.dropout`; None for
            the modules' rates.
    """

    batch: int
    columns: int
    length: int
    slots: Tensor
    source: Tensor
    first: Tensor
    queries: Tensor
    keys: Tensor | None
    seen: Tensor | None = None
    rates: Tensor | None = None
    apart = True

    @classmethod
    def of(cls, attention_mask: Tensor, rates: Tensor | None = None) -> Packed:
        (batch, columns), length = attention_mask.shape, up(attention_mask.shape[1], EDGE)
        grid = F.pad(attention_mask, (0, length - columns))
        kept = grid != 0
        kept[:, 0] = True  # even if the padding is on the left
        size, count = kept.numel(), fixed_number(kept.numel())
        full = count is None and bool(grid.all())
        if count is None:
            count = min(filled(int(kept.sum())), size)
        slots = places(~kept.flatten(), count)
        column = slots % length
        source = slots // length * columns + column.clamp(max=columns - 1)
        first = torch.searchsorted(slots, torch.arange(0, size, length, device=slots.device))
        keys = None if full else ready_mask(grid, rates)
        return cls(batch, columns, length, slots, source, first, slots, keys, rates=rates)

    def causal(self) -> Packed:
        return replace(self, keys=earlier(self.length, self.slots.device))

    @property
    def row(self) -> Tensor:
        """The sentence of each token, (N,)."""
        return self.slots // self.length

    @property
    def position(self) -> Tensor:
        """The column of each token, (N,); columns beyond the padded batch count as the last one."""
        return self.source % self.columns

    def per_token(self, vectors: Tensor) -> Tensor:
        return vectors.index_select(0, self.row).unsqueeze(0)

    def pack(self, padded: Tensor) -> Tensor:
        """(B, L, ...) -> (N, ...)."""
        return padded.flatten(0, 1)[self.source]

    def align(self, labels: Tensor) -> Tensor:
        """(B, L) -> (N,); columns beyond the padded batch have no label."""
        beyond = self.slots % self.length >= self.columns
        return self.pack(labels).masked_fill(beyond, IGNORED)

    def unpack(self, states: Tensor) -> Tensor:
        """States (1, N, H) -> (B, L, H), zeros elsewhere."""
        rows = spread(states[0], self.slots, self.batch * self.length)
        return rows.view(self.batch, self.length, -1)[:, : self.columns]

    def at(self, states: States, tokens: Tensor) -> Tensor:
        """The states of some distinct tokens, (1, number of tokens, H).

        A layer that waits runs for these only.
        """
        some = states.values[0].index_select(0, tokens).unsqueeze(0)
        if states.last is None:
            return some
        attending = replace(
            self, queries=self.slots[tokens], seen=states.values
        )  # keys and values come from all
        return states.last(some, attending, **self.sampled(tokens))

    def first_of(self, states: States) -> Tensor:
        return self.at(states, self.first)[0]

    def marked(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """As `Padded.marked`; first tokens fill up last."""
        targets = self.align(labels)
        unmarked = targets == IGNORED
        rank = unmarked.to(torch.uint8)
        rank[self.first] *= 2
        count = fixed_number(self.batch * self.length, labels=True)
        if count is None:
            count = filled(int((~unmarked).sum()))
        tokens = places(rank, min(count, len(targets)))
        return tokens, targets[tokens]

    def both(self, states: States, labels: Tensor) -> tuple[Tensor, Labelled]:
        tokens, targets = self.marked(labels)
        unread = torch.ones_like(self.slots, dtype=torch.bool)
        unread[self.first] = unread[tokens] = False
        read = places(unread, min(len(self.first) + len(tokens), len(self.slots)))
        states = States(self, self.at(states, read))
        first, late = (
            self.at(states, torch.searchsorted(read, part)) for part in (self.first, tokens)
        )
        return first[0], Labelled(late, targets)

    def embed(self, model: Any, input_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """As `Padded.embed`, -> (1, N, H)."""
        if position_ids is not None:
            positions = self.pack(position_ids)
        elif family_of(model.config).offset_positions:
            count = model.embeddings.create_position_ids_from_input_ids
            positions = self.pack(count(input_ids, model.config.pad_token_id))
        else:
            positions = self.position
        ids = {
            "input_ids": self.pack(input_ids).unsqueeze(0),
            "position_ids": positions.unsqueeze(0),
        }
        return embed(model, **ids, **self.sampled())

    def run(self, layers: Layers, states: Tensor) -> Tensor:
        sampled = self.sampled()
        for layer in layers:
            states = layer(states, self, **sampled)
        return states

    def with_first(self, states: Tensor, vectors: Tensor) -> Tensor:
        return states.index_copy(1, self.first, vectors.to(states.dtype).unsqueeze(0))

    def token_loss(
        self, transform: nn.Module, decoder: nn.Linear, labelled: Labelled
    ) -> tuple[Tensor, Tensor]:
        """As `Padded.token_loss`, without all logits in memory at once."""
        total = vocabulary_loss(decoder, transform(labelled.states)[0], labelled.labels)
        return total, (labelled.labels != IGNORED).sum()

    def sampled(self, tokens: Tensor | None = None) -> dict[str, Tensor]:
        """As `Padded.sampled`, for (1, N, H) or some of its tokens."""
        if self.rates is None:
            return {}
        return {
            "rates": self.rates[self.row if tokens is None else self.row[tokens]][None, :, None]
        }


def packed_attention(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, **kwargs
):
    """Attention within the sentences of a packed batch; `sdpa` if the mask is not a Packed.

    Queries, keys and values are (1, heads, N, width); returns (1, number of queries, heads, width)
    and no weights.
    """
    if not isinstance(attention_mask, Packed):
        drop = getattr(module, "dropout", None)
        if not isinstance(drop, SampledDropout) or drop.rates is None or not module.training:
            return sdpa_attention_forward(
                module, query, key, value, attention_mask, dropout, scaling, **kwargs
            )
        mixed = attend(
            query, key, value, attention_mask, drop.of(drop.rates).unsqueeze(-1), scaling
        )
        return mixed.transpose(1, 2), None
    packing, (_, heads, _, width) = attention_mask, key.shape
    size = packing.batch * packing.length
    if packing.seen is not None:
        names = family_of(module.config).keys_values
        key, value = (
            getattr(module, name)(packing.seen).view(1, -1, heads, width).transpose(1, 2)
            for name in names
        )

    def grid(x: Tensor, indices: Tensor) -> Tensor:
        rows = x.transpose(1, 2).reshape(-1, heads * width)
        spread_out = spread(rows, indices, size)
        return spread_out.view(packing.batch, packing.length, heads, width).transpose(1, 2)

    query, key, value = (
        grid(query, packing.queries),
        grid(key, packing.slots),
        grid(value, packing.slots),
    )
    rates = packing.rates if module.training else None
    if rates is not None:
        mixed = attend(
            query, key, value, packing.keys, module.dropout.of(rates).view(-1, 1, 1, 1), scaling
        )
    elif on_cpu(query) and (dropout or backward_is_slow(query)):
        mixed = attend(query, key, value, packing.keys, dropout or None, scaling)
    else:
        mixed = F.scaled_dot_product_attention(
            query, key, value, packing.keys, dropout_p=dropout, scale=scaling
        )
    rows = mixed.transpose(1, 2).reshape(size, heads * width)
    return rows.index_select(0, packing.queries).view(1, -1, heads, width), None


for name in (NAME, SAMPLED):
    AttentionInterface.register(name, packed_attention)
    AttentionMaskInterface.register(name, sdpa_mask)  # for the padded call of the same model


def spread(rows: Tensor, indices: Tensor, size: int) -> Tensor:
    """Scatter rows (N, W) to distinct indices among `size` rows, zeros elsewhere."""
    return rows.new_zeros(size, rows.shape[1]).index_copy_(0, indices, rows)
