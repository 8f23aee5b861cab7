"""Run the parts of a model on a batch: with padding here, without it in `models.fast.packed`.

Tensors of states are (B, L, H) here and (1, N, H) there. `States` is for readers that need not know
which.
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
from models.families import embed, family_of, layers_of
from models.fast.kernels import on_cpu
from models.fast.packing import fixed_number, up
from models.perturb import Perturbation
from models.precision import at_least_float32

SAMPLED = "sampled"  # attention with rates from the batch, registered in `models.fast.packed`
READY = ("sdpa", "packed", SAMPLED)  # attention functions that accept a prepared mask
ROWS = 128  # labelled tokens of a padded batch are filled up to a multiple of this
Layers = Sequence[Callable[..., Tensor]] | nn.ModuleList


def earlier(length: int, device: torch.device) -> Tensor:
    """Return a causal mask, True to the token itself and earlier ones, (1, 1, length, length)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


class Labelled(NamedTuple):
    """States of the labelled tokens and others, with their labels, (M,), IGNORED for the others."""

    states: Tensor
    labels: Tensor


@dataclass(frozen=True)
class States:
    """The states of a batch's tokens.

    A last layer that waits runs for the tokens that are read: read it once.

    Attributes:
        tokens: where the tokens are, and how layers run on them.
        values: (B, L, H) with padding, (1, N, H) without.
        last: the layer that waits, or None.
    """

    tokens: Padded
    values: Tensor
    last: Callable[..., Tensor] | None = None

    def through(self, layers: Layers, late: bool = True) -> States:
        """The states behind some layers; `late`: the last may wait, which not every layer can."""
        return self.tokens.through(self.all, layers, late)

    @property
    def all(self) -> Tensor:
        """The states of all tokens, in the form of `values`."""
        return self.values if self.last is None else self.tokens.run([self.last], self.values)

    @property
    def padded(self) -> Tensor:
        """(B, L, H); padding is meaningless."""
        return self.tokens.unpack(self.all)

    @property
    def first(self) -> Tensor:
        """The first token of each sentence, (B, H)."""
        return self.tokens.first_of(self)

    def with_first(self, vectors: Tensor) -> States:
        """[h ; M > 0]: with the first tokens replaced by vectors, (B, H)."""
        return replace(self, values=self.tokens.with_first(self.all, vectors), last=None)

    def labelled(self, labels: Tensor) -> Labelled:
        """The states for a loss at the labels, (B, L)."""
        tokens, targets = self.tokens.marked(labels)
        return Labelled(self.tokens.at(self, tokens), targets)

    def both(self, labels: Tensor) -> tuple[Tensor, Labelled]:
        """`first` and `labelled` in one reading."""
        return self.tokens.both(self, labels)

    def token_loss(
        self, transform: nn.Module, decoder: Any, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Sum of the cross entropies of the labels, (B, L), and their number.

        Logits go through transform and vocabulary matrix, a linear layer or its weight and bias.
        """
        return self.tokens.token_loss(transform, decoder, self.labelled(labels))


class Padded:
    """Runs layers on the padded batch as the library does.

    For unknown families, and the reference for `Packed`. It has the mask of a batch, (B, L), and
    perhaps dropout rates of its sentences, (B, O).
    """

    # Whether embeddings and layers always run by themselves, and a last layer may wait.
    apart = False

    def __init__(self, attention_mask: Tensor, rates: Tensor | None = None) -> None:
        self.mask, self.rates = attention_mask, rates

    def causal(self) -> Padded:
        """The same batch with causal attention; its padding must be on the right."""
        return type(self)(earlier(self.mask.shape[1], self.mask.device), self.rates)

    def encode(self, backbone: PreTrainedModel, input_ids: Tensor, change: Perturbation) -> States:
        """Run a whole backbone on ids (B, L)."""
        by_parts = self.apart or change or self.rates is not None
        if by_parts and not family_of(backbone.config).whole:
            return self.through(self._embedded(backbone, input_ids, change), layers_of(backbone))
        return States(
            self,
            backbone(
                input_ids=input_ids, attention_mask=self._mask(backbone.config)
            ).last_hidden_state,
        )

    def every(
        self, backbone: PreTrainedModel, input_ids: Tensor, change: Perturbation
    ) -> list[Tensor]:
        """Ids (B, L) -> the states of embeddings and all layers, (B, L, H) each."""
        if family_of(backbone.config).whole:
            tokens = {"input_ids": input_ids, "attention_mask": self._mask(backbone.config)}
            return backbone(**tokens, output_hidden_states=True).hidden_states
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
        moved = {} if position_ids is None else {"position_ids": position_ids}
        return embed(model, input_ids=input_ids, **moved, **self.sampled())

    def pack(self, padded: Tensor) -> Tensor:
        """Select the tokens of states from a padded tensor, (B, L, ...)."""
        return padded

    def sampled(self) -> dict[str, Tensor]:
        """The extra argument of a part with sampled dropout, see `models.fast.kernels.dropout`."""
        return {} if self.rates is None else {"rates": self.rates[:, None, None]}

    def run(self, layers: Layers, states: Tensor) -> Tensor:
        """Run transformer layers, states -> states; padding is masked as in the backbone."""
        if len(layers) == 0:
            return states
        first: Any = layers[0]
        config = getattr(first.attention, "self", first.attention).config  # BERT nests a module
        mask = create_bidirectional_mask(
            config=config, inputs_embeds=states, attention_mask=self._mask(config)
        )
        sampled = self.sampled()
        for layer in layers:
            states = layer(states, mask, **sampled)
        return states

    def through(self, states: Tensor, layers: Layers, late: bool = True) -> States:
        """Run layers; see `States.through`."""
        if self.apart and late and len(layers):
            return States(self, self.run(layers[:-1], states), layers[-1])
        return States(self, self.run(layers, states))

    def marked(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens with a label and others that fill them up; their labels.

        (B, L) -> (M,) each; the label of a token without one is IGNORED.
        """
        targets = labels.flatten()
        marked = targets != IGNORED
        count = fixed_number(len(targets), labels=True)
        if count is None:
            count = min(up(int(marked.sum()), ROWS), len(targets))
        tokens = (~marked).to(torch.uint8).argsort(stable=True)[:count]
        return tokens, targets[tokens]

    def at(self, states: States, tokens: Tensor) -> Tensor:
        """The states of some distinct tokens, in the form of the states."""
        return states.values.flatten(0, 1)[tokens]

    def first_of(self, states: States) -> Tensor:
        """The states of the first tokens, (B, H)."""
        return states.values[:, 0]

    def both(self, states: States, labels: Tensor) -> tuple[Tensor, Labelled]:
        """See `States.both`."""
        return states.first, states.labelled(labels)

    def unpack(self, states: Tensor) -> Tensor:
        """States -> (B, L, H)."""
        return states

    def with_first(self, states: Tensor, vectors: Tensor) -> Tensor:
        """[h ; M > 0]: the states with the first tokens replaced by vectors, (B, H)."""
        return torch.cat([vectors.unsqueeze(1), states[:, 1:]], dim=1)

    def per_token(self, vectors: Tensor) -> Tensor:
        """Make sentence vectors, (B, H), broadcast to states."""
        return vectors.unsqueeze(1)

    def align(self, labels: Tensor) -> Tensor:
        """Labels (B, L) in the order of states; IGNORED for a state without a token."""
        return labels

    def token_loss(
        self, transform: nn.Module, decoder: nn.Linear, labelled: Labelled
    ) -> tuple[Tensor, Tensor]:
        """Sum of the cross entropies of the labels, and their number.

        Logits, through transform and vocabulary matrix, are computed only for the labelled tokens.
        """
        logits = decoder(transform(labelled.states))  # (M, vocabulary)
        total = F.cross_entropy(
            at_least_float32(logits), labelled.labels, ignore_index=IGNORED, reduction="sum"
        )
        return total, (labelled.labels != IGNORED).sum()

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


def ready_mask(mask: Tensor, rates: Tensor | None) -> Tensor:
    """Convert a mask (B, L) to what attention adds to the scores, (B, 1, 1, L), in their dtype.

    So it is converted once per batch, not per layer. On a CPU, and with sampled rates, it is True
    for a real token.
    """
    keys = mask.bool()[:, None, None]
    if rates is not None or on_cpu(mask):
        return keys
    device_type = mask.device.type
    dtype = (
        torch.get_autocast_dtype(device_type)
        if torch.is_autocast_enabled(device_type)
        else torch.get_default_dtype()
    )
    return torch.zeros(keys.shape, dtype=dtype, device=mask.device).masked_fill_(
        ~keys, float("-inf")
    )
