"""The tokens of a batch, their states, and how a model's layers run on them.

States are (1, N, H): of all B L positions with padding (`Padded`), of the real tokens without it
(`models.fast.packed`). `States` is for readers that need not know which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask

from data.views import IGNORED
from models.contrast import at_least_float32
from models.families import embed, family_of, layers_of
from models.fast.dropout import on_cpu
from models.fast.packing import filled, fixed_number, places
from models.fast.vocabulary_loss import vocabulary_loss
from models.perturb import Perturbation

SAMPLED = "sampled"  # attention with rates from the batch, registered in `models.fast.packed`
READY = ("sdpa", "packed", SAMPLED)  # attention functions that accept a prepared mask
Layers = Sequence[Callable[..., Tensor]] | nn.ModuleList


class Labelled(NamedTuple):
    """States of the labelled tokens and others, (1, M, H), with their labels, (M,).

    The label of the others is IGNORED. `in_pieces`: whether only some of their logits may be in
    memory at once.
    """

    states: Tensor
    labels: Tensor
    in_pieces: bool


@dataclass(frozen=True)
class States:
    """The states of a batch's tokens.

    A last layer that waits runs for the tokens that are read: read it once.

    Attributes:
        tokens: where the tokens are, and how layers run on them.
        values: (1, N, H).
        last: the layer that waits, or None.
    """

    tokens: Tokens
    values: Tensor
    last: Callable[..., Tensor] | None = None

    def through(self, layers: Layers, late: bool = True) -> States:
        """The states behind some layers; `late`: the last may wait, which not every layer can."""
        if self.tokens.waits and late and len(layers):
            return States(self.tokens, self.tokens.run(layers[:-1], self.all), layers[-1])
        return States(self.tokens, self.tokens.run(layers, self.all))

    @property
    def all(self) -> Tensor:
        """The states of all tokens, (1, N, H)."""
        return self.values if self.last is None else self.tokens.run([self.last], self.values)

    @property
    def padded(self) -> Tensor:
        """(B, L, H); padding is meaningless."""
        return self.tokens.unpack(self.all)

    @property
    def first(self) -> Tensor:
        """The first token of each sentence, (B, H)."""
        return self.at(self.tokens.first)[0]

    def at(self, indices: Tensor) -> Tensor:
        """The states of some distinct tokens, (1, number of indices, H)."""
        some = self.values[0].index_select(0, indices).unsqueeze(0)
        if self.last is None:
            return some
        return self.tokens.run_at(self.last, some, indices, self.values)

    def with_first(self, vectors: Tensor) -> States:
        """[h ; M > 0]: with the first tokens replaced by vectors, (B, H)."""
        rows = vectors.to(self.values.dtype).unsqueeze(0)
        return States(self.tokens, self.all.index_copy(1, self.tokens.first, rows))

    def labelled(self, labels: Tensor) -> Labelled:
        """The states for a loss at the labels, (B, L)."""
        marked, targets = self.tokens.marked(labels)
        return Labelled(self.at(marked), targets, self.tokens.waits)

    def both(self, labels: Tensor) -> tuple[Tensor, Labelled]:
        """`first` and `labelled` in one reading."""
        states, first = self, self.tokens.first
        marked, targets = self.tokens.marked(labels)
        if self.last is not None:
            unread = torch.ones_like(self.tokens.slots, dtype=torch.bool)
            unread[first] = unread[marked] = False
            read = places(unread, min(len(first) + len(marked), len(unread)))
            states = States(self.tokens, self.at(read))
            first, marked = (torch.searchsorted(read, part) for part in (first, marked))
        return states.at(first)[0], Labelled(states.at(marked), targets, self.tokens.waits)


def token_loss(transform: nn.Module, decoder: Any, labelled: Labelled) -> tuple[Tensor, Tensor]:
    """Sum of the cross entropies of the labels, and their number.

    Logits, through transform and vocabulary matrix (a linear layer, or its weight and bias), are
    computed only for the labelled tokens.
    """
    states = transform(labelled.states)[0]
    if labelled.in_pieces:
        total = vocabulary_loss(decoder, states, labelled.labels)
    else:
        logits = at_least_float32(decoder(states))  # (M, vocabulary)
        total = F.cross_entropy(logits, labelled.labels, ignore_index=IGNORED, reduction="sum")
    return total, (labelled.labels != IGNORED).sum()


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """N tokens of a batch (B, L), in a grid of B rows and `length` columns.

    Attributes:
        batch, columns: B and L.
        length: L, or more.
        slots: the index of each token in the flattened grid, ascending, (N,).
        source: its index in the flattened mask, where columns beyond the mask count as the last
            one, (N,).
        first: the index of each sentence's first token among the N, (B,).
        rates: dropout rates of the sentences, (B, O), see `models.fast.dropout`; None for the
            modules' rates.
    """

    batch: int
    columns: int
    length: int
    slots: Tensor
    source: Tensor
    first: Tensor
    rates: Tensor | None = None
    waits = False  # whether a last layer may wait, and logits be computed in pieces

    def causal(self) -> Tokens:
        """The same batch with causal attention; its padding must be on the right."""
        raise NotImplementedError

    def run(self, layers: Layers, states: Tensor) -> Tensor:
        """Run transformer layers, states -> states; padding is masked as in the backbone."""
        raise NotImplementedError

    def run_at(self, layer: Callable, some: Tensor, indices: Tensor, states: Tensor) -> Tensor:
        """Run a layer for some tokens, whose states are `some`; keys and values come from all."""
        raise NotImplementedError

    def unpack(self, states: Tensor) -> Tensor:
        """States (1, N, H) -> (B, L, H)."""
        raise NotImplementedError

    @property
    def row(self) -> Tensor:
        """The sentence of each token, (N,)."""
        return self.slots // self.length

    def pack(self, padded: Tensor) -> Tensor:
        """(B, L, ...) -> (N, ...)."""
        return padded.flatten(0, 1)[self.source]

    def per_token(self, vectors: Tensor) -> Tensor:
        """Each token's sentence vector, (B, H) -> (1, N, H)."""
        return vectors.index_select(0, self.row).unsqueeze(0)

    def align(self, labels: Tensor) -> Tensor:
        """(B, L) -> (N,); IGNORED for columns beyond the padded batch."""
        beyond = self.slots % self.length >= self.columns
        return self.pack(labels).masked_fill(beyond, IGNORED)

    def marked(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens with a label and others that fill them up, first tokens last; their labels.

        (B, L) -> (M,) each; the label of a token without one is IGNORED.
        """
        targets = self.align(labels)
        unmarked = targets == IGNORED
        rank = unmarked.to(torch.uint8)
        rank[self.first] *= 2
        count = fixed_number(self.batch * self.length, labels=True)
        if count is None:
            count = filled(int((~unmarked).sum()))
        marked = places(rank, min(count, len(targets)))
        return marked, targets[marked]

    def encode(self, backbone: PreTrainedModel, input_ids: Tensor, change: Perturbation) -> States:
        """Run a whole backbone on ids (B, L)."""
        states = States(self, self._embedded(backbone, input_ids, change))
        return states.through(layers_of(backbone))

    def every(
        self, backbone: PreTrainedModel, input_ids: Tensor, change: Perturbation
    ) -> Sequence[Tensor]:
        """Ids (B, L) -> the states of embeddings and all layers, (B, L, H) each."""
        every = [self._embedded(backbone, input_ids, change)]
        for layer in layers_of(backbone):
            every.append(self.run([layer], every[-1]))
        return [self.unpack(states) for states in every]

    def _embedded(
        self, backbone: PreTrainedModel, input_ids: Tensor, change: Perturbation
    ) -> Tensor:
        positions = change.position_ids(backbone.config)
        return change.change(self.embed(backbone, input_ids, positions), self.pack)

    def embed(self, model: Any, input_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Ids (B, L), and positions if not the default ones -> states.

        The model is a backbone or a copy of its embeddings.
        """
        if position_ids is not None:
            positions = self.pack(position_ids)
        elif family_of(model.config).offset_positions:
            count = model.embeddings.create_position_ids_from_input_ids
            positions = self.pack(count(input_ids, model.config.pad_token_id))
        else:
            positions = self.source % self.columns
        ids = self.pack(input_ids).unsqueeze(0)
        return embed(
            model, input_ids=ids, position_ids=positions.unsqueeze(0), **self.sampled(self.row)
        )

    def sampled(self, rows: Tensor) -> dict[str, Tensor]:
        """The extra argument of a part with sampled dropout for tokens of these sentences."""
        return {} if self.rates is None else {"rates": self.rates[rows][None, :, None]}


@dataclass(frozen=True, kw_only=True)
class Padded(Tokens):
    """All positions of a batch; layers run as the library runs them.

    For unknown families, and the reference for `Packed`.

    Attributes:
        mask: 1 for a real token, (B, L), or what a token sees, (1, 1, L, L).
    """

    mask: Tensor

    @classmethod
    def of(cls, mask: Tensor, rates: Tensor | None = None) -> Padded:
        """Of a mask, (B, L)."""
        (batch, columns), device = mask.shape, mask.device
        every = torch.arange(batch * columns, device=device)
        first = torch.arange(0, batch * columns, columns, device=device)
        return cls(
            batch=batch,
            columns=columns,
            length=columns,
            slots=every,
            source=every,
            first=first,
            rates=rates,
            mask=mask,
        )

    def causal(self) -> Padded:
        return replace(self, mask=earlier(self.columns, self.mask.device))

    def encode(self, backbone: PreTrainedModel, input_ids: Tensor, change: Perturbation) -> States:
        if (change or self.rates is not None) and not family_of(backbone.config).whole:
            return super().encode(backbone, input_ids, change)
        mask = self._mask(backbone.config)
        states = backbone(input_ids=input_ids, attention_mask=mask).last_hidden_state
        return States(self, states.flatten(0, 1).unsqueeze(0))

    def every(
        self, backbone: PreTrainedModel, input_ids: Tensor, change: Perturbation
    ) -> Sequence[Tensor]:
        if not family_of(backbone.config).whole:
            return super().every(backbone, input_ids, change)
        tokens: Any = {"input_ids": input_ids, "attention_mask": self._mask(backbone.config)}
        return backbone(**tokens, output_hidden_states=True).hidden_states

    def run(self, layers: Layers, states: Tensor) -> Tensor:
        if len(layers) == 0:
            return states
        first: Any = layers[0]
        config = getattr(first.attention, "self", first.attention).config  # BERT nests a module
        states = self.unpack(states)
        mask = create_bidirectional_mask(
            config=config, inputs_embeds=states, attention_mask=self._mask(config)
        )
        sampled = {} if self.rates is None else {"rates": self.rates[:, None, None]}
        for layer in layers:
            states = layer(states, mask, **sampled)
        return states.flatten(0, 1).unsqueeze(0)

    def unpack(self, states: Tensor) -> Tensor:
        return states.view(self.batch, self.columns, -1)

    def _mask(self, config) -> Tensor:
        """The mask to pass to the library.

        It is prepared on a GPU, where the library would synchronise to look for padding. On a CPU,
        for models called as a whole and for other attention functions, it is the mask itself.
        """
        if (
            self.mask.dim() == 4
            or on_cpu(self.mask)
            or family_of(config).whole
            or config._attn_implementation not in READY
        ):
            return self.mask
        return ready_mask(self.mask, self.rates)


def earlier(length: int, device: torch.device) -> Tensor:
    """Return a causal mask, True to the token itself and earlier ones, (1, 1, length, length)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


def ready_mask(mask: Tensor, rates: Tensor | None) -> Tensor:
    """Convert a mask (B, L) to what attention adds to the scores, (B, 1, 1, L), in their dtype.

    So it is converted once per batch, not per layer. On a CPU, and with sampled rates, it is True
    for a real token.
    """
    keys = mask.bool()[:, None, None]
    if rates is not None or on_cpu(mask):
        return keys
    kind = mask.device.type
    dtype = torch.get_default_dtype()
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
    added = torch.zeros(keys.shape, dtype=dtype, device=mask.device)
    return added.masked_fill_(~keys, float("-inf"))
