"""A batch without its padding: a backbone's own layers run on the real tokens only.

The sentences of a batch are concatenated in one row, (1, N, H). Embeddings, projections,
feed-forward and norms work per token, so they run on that row unchanged; only attention scatters
queries, keys and values to the padded grid, in the function registered here with transformers. A
layer may compute its output at some tokens only, from the keys and values of all.

Dropout masks have other shapes than in the padded call: the same distribution, another random
stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from models.families import family_of
from models.fast.dropout import Dropout, attend, backward_is_slow, on_cpu
from models.fast.packing import EDGE, filled, fixed_number, places, up
from models.fast.tokens import SAMPLED, Layers, Tokens, earlier, ready_mask

NAME = "packed"


@dataclass(frozen=True, kw_only=True)
class Packed(Tokens):
    """The real tokens of a batch, and the first padding positions that make N a round number.

    The grid has a multiple of EDGE columns. As in the padded call, padding positions attend but are
    not attended to, and no loss or pooling reads them.

    Attributes:
        queries: the grid indices of the tokens that attend; `slots`, or a part of them.
        keys: which grid positions are attended to, (B or 1, 1, 1 or length, length), see
            `ready_mask`; None for all.
        seen: if only some tokens attend, the states of all, (1, N, H), for keys and values;
            otherwise None.
    """

    queries: Tensor
    keys: Tensor | None
    seen: Tensor | None = None
    waits = True

    @classmethod
    def of(cls, mask: Tensor, rates: Tensor | None = None) -> Packed:
        """Of a mask, 1 for a real token, (B, L)."""
        (batch, columns), length = mask.shape, up(mask.shape[1], EDGE)
        grid = F.pad(mask, (0, length - columns))
        kept = grid != 0
        kept[:, 0] = True  # even if the padding is on the left
        size, count = kept.numel(), fixed_number(kept.numel())
        full = count is None and bool(grid.all())
        if count is None:
            count = min(filled(int(kept.sum())), size)
        slots = places(~kept.flatten(), count)
        column = slots % length
        starts = torch.arange(0, size, length, device=slots.device)
        return cls(
            batch=batch,
            columns=columns,
            length=length,
            slots=slots,
            source=slots // length * columns + column.clamp(max=columns - 1),
            first=torch.searchsorted(slots, starts),
            rates=rates,
            queries=slots,
            keys=None if full else ready_mask(grid, rates),
        )

    def causal(self) -> Packed:
        return replace(self, keys=earlier(self.length, self.slots.device))

    def run(self, layers: Layers, states: Tensor) -> Tensor:
        sampled = self.sampled(self.row)
        for layer in layers:
            states = layer(states, self, **sampled)
        return states

    def run_at(self, layer: Callable, some: Tensor, indices: Tensor, states: Tensor) -> Tensor:
        attending = replace(self, queries=self.slots[indices], seen=states)
        return layer(some, attending, **self.sampled(self.row[indices]))

    def unpack(self, states: Tensor) -> Tensor:
        rows = spread(states[0], self.slots, self.batch * self.length)  # zeros elsewhere
        return rows.view(self.batch, self.length, -1)[:, : self.columns]


def packed_attention(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, **kwargs
):
    """Attention within the sentences of a packed batch; `sdpa` if the mask is not a Packed.

    Queries, keys and values are (1, heads, N, width); returns (1, number of queries, heads, width)
    and no weights.
    """
    if not isinstance(attention_mask, Packed):
        drop = getattr(module, "dropout", None)
        if not isinstance(drop, Dropout) or drop.rates is None or not module.training:
            return sdpa_attention_forward(
                module, query, key, value, attention_mask, dropout, scaling, **kwargs
            )
        own = drop.of(drop.rates).unsqueeze(-1)
        return attend(query, key, value, attention_mask, own, scaling).transpose(1, 2), None
    packing, (_, heads, _, width) = attention_mask, key.shape
    size = packing.batch * packing.length
    if packing.seen is not None:
        seen = [getattr(module, n)(packing.seen) for n in family_of(module.config).keys_values]
        key, value = (states.view(1, -1, heads, width).transpose(1, 2) for states in seen)

    def grid(x: Tensor, indices: Tensor) -> Tensor:
        rows = x.transpose(1, 2).reshape(-1, heads * width)
        spaced = spread(rows, indices, size)
        return spaced.view(packing.batch, packing.length, heads, width).transpose(1, 2)

    query = grid(query, packing.queries)
    key, value = grid(key, packing.slots), grid(value, packing.slots)
    rates = packing.rates if module.training else None
    if rates is not None:
        own = module.dropout.of(rates).view(-1, 1, 1, 1)
        mixed = attend(query, key, value, packing.keys, own, scaling)
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
