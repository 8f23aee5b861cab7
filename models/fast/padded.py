"""Run the parts of a model on a batch: with padding here, without it in `models.fast.packed`.

No other file depends on which of the two runs. States, as `embed` and `run` take and return them, are (B, L, H) here
and (1, N, H) there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask

from data.views import IGNORED
from models.families import embed, family_of, layers_of
from models.fast.kernels import on_cpu
from models.fast.packing import Grid
from models.perturb import UNCHANGED, Perturbation
from models.precision import at_least_float32

READY = ("sdpa", "packed")  # attention functions that accept a prepared mask
LOGITS = 1024  # tokens with logits in memory at once: 62 MB in bfloat16 with BERT's vocabulary
Read = Callable[..., Tensor]


class Labelled(NamedTuple):
    """States of the labelled tokens and some unlabelled ones, with their labels (IGNORED for the latter), (M,)."""

    states: Tensor
    labels: Tensor


def earlier(length: int, device: torch.device) -> Tensor:
    """Return a causal mask, True from each token to itself and to earlier ones, (1, 1, length, length)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


class Padded:
    """Runs layers on the padded batch as the library does: for unknown families, and the reference for `Packed`."""

    def __init__(self, attention_mask: Tensor, rates: Tensor | None = None, layout: Grid | None = None) -> None:
        self.mask, self.rates, self.layout = attention_mask, rates, layout

    @classmethod
    def of(cls, attention_mask: Tensor, rates: Tensor | None = None, layout: Grid | None = None) -> Padded:
        """For a batch with this mask, (B, L), dropout rates of its sentences, (B, O), and the mask's layout, if any."""
        return cls(attention_mask, rates, layout)

    @classmethod
    def prepare(cls, model: PreTrainedModel) -> type[Padded]:
        """Prepare a model for this runner; return this class, or the padded runner if the model is not supported."""
        return cls

    def causal(self) -> Padded:
        """The same batch with causal attention; its padding must be on the right."""
        return type(self)(earlier(self.mask.shape[1], self.mask.device), self.rates, self.layout)

    def states(
        self, backbone: PreTrainedModel, input_ids: Tensor, change: Perturbation, all_layers: bool = False
    ) -> Sequence[Tensor]:
        """Ids (B, L) -> the last layer's states in a list, or those of embeddings and all layers, (B, L, H) each."""
        config = backbone.config
        if (change or all_layers or self.rates is not None) and not family_of(config).whole:
            positions = change.position_ids(config)
            own = {} if positions is None else {"position_ids": positions}
            states = embed(backbone, input_ids=input_ids, **own, **self.sampled())
            return self.run_every(layers_of(backbone), change.change(states), all_layers)
        mask = self._mask(config)
        output = backbone(input_ids=input_ids, attention_mask=mask, output_hidden_states=all_layers)
        return output.hidden_states if all_layers else [output.last_hidden_state]

    def first_states(self, backbone: PreTrainedModel, input_ids: Tensor, change: Perturbation) -> Tensor:
        """Ids (B, L) -> the last layer's states of the first tokens, (B, H)."""
        return self.states(backbone, input_ids, change)[-1][:, 0]

    def logits(self, lm: PreTrainedModel, input_ids: Tensor, read: Read, *others: Tensor | None) -> Tensor:
        """Apply `read` to the logits of each real token and to `others`, (B, L): -> (B, L).

        `read` gets (..., vocabulary) and (...); the logits of about `LOGITS` tokens are in memory at once.
        """
        parts, mask = [], self._mask(lm.config)
        size = max(1, LOGITS // input_ids.shape[1])
        for rows in (slice(start, start + size) for start in range(0, len(input_ids), size)):
            logits = lm(input_ids=input_ids[rows], attention_mask=mask[rows]).logits
            parts.append(read(logits, *(None if other is None else other[rows] for other in others)))
        return torch.cat(parts)

    def embed(self, model: nn.Module, input_ids: Tensor) -> Tensor:
        """Ids (B, L) -> states, by a backbone or a copy of its embeddings."""
        return embed(model, input_ids=input_ids)

    def sampled(self) -> dict[str, Tensor]:
        """The extra argument of a part with sampled dropout, see `models.fast.kernels.dropout`."""
        return {} if self.rates is None else {"rates": self.rates[:, None, None]}

    def run(self, layers: Sequence[nn.Module], states: Tensor) -> Tensor:
        """Run transformer layers, states -> states; padding is masked as in the backbone."""
        if len(layers) == 0:
            return states
        attention = layers[0].attention
        config = getattr(attention, "self", attention).config  # BERT nests a module
        mask = create_bidirectional_mask(config=config, inputs_embeds=states, attention_mask=self._mask(config))
        sampled = self.sampled()
        for layer in layers:
            states = layer(states, mask, **sampled)
        return states

    def run_every(self, layers: Sequence[nn.Module], states: Tensor, all_layers: bool) -> list[Tensor]:
        """Run layers; the last states in a list, or with `all_layers` the input and every layer's output."""
        if not all_layers:
            return [self.run(layers, states)]
        every = [states]
        for layer in layers:
            every.append(self.run([layer], every[-1]))
        return every

    def run_first(self, layers: Sequence[nn.Module], states: Tensor) -> Tensor:
        """Run layers; the states of the first tokens, (B, H)."""
        return self.run(layers, states)[:, 0]

    def run_labelled(self, layers: Sequence[nn.Module], states: Tensor, labels: Tensor, name: str) -> Labelled:
        """Run layers; the states for a loss at the labels, (B, L), which the layout may have under `name`."""
        return self.labelled(self.run(layers, states), labels, name)

    def run_whole(self, backbone: PreTrainedModel, input_ids: Tensor, labels: Tensor, name: str) -> Labelled:
        """Run a whole backbone, ids (B, L) -> the states for a loss at the labels, (B, L)."""
        return self.labelled(self.states(backbone, input_ids, UNCHANGED)[-1], labels, name)

    def run_both(
        self, layers: Sequence[nn.Module], states: Tensor, labels: Tensor, name: str
    ) -> tuple[Tensor, Labelled]:
        """`run_first` and `run_labelled` in one pass."""
        states = self.run(layers, states)
        return states[:, 0], self.labelled(states, labels, name)

    def with_first(self, states: Tensor, vectors: Tensor) -> Tensor:
        """[h ; M > 0]: the states with the first tokens replaced by vectors, (B, H)."""
        return torch.cat([vectors.unsqueeze(1), states[:, 1:]], dim=1)

    def per_token(self, vectors: Tensor) -> Tensor:
        """Make sentence vectors, (B, H), broadcast to states."""
        return vectors.unsqueeze(1)

    def align(self, labels: Tensor) -> Tensor:
        """Labels (B, L) in the order of states; IGNORED for a state without a token."""
        return labels

    def token_loss(self, transform: nn.Module, decoder: nn.Linear, labelled: Labelled) -> tuple[Tensor, Tensor]:
        """Sum of the cross entropies of the labels, through transform and vocabulary matrix, and their number.

        Logits are computed only for the labelled tokens.
        """
        logits = decoder(transform(labelled.states))  # (M, vocabulary)
        total = F.cross_entropy(at_least_float32(logits), labelled.labels, ignore_index=IGNORED, reduction="sum")
        return total, (labelled.labels != IGNORED).sum()

    def labelled(self, states: Tensor, labels: Tensor, name: str) -> Labelled:
        """States of all tokens -> the states for a loss at the labels, (B, L)."""
        marked = (self.layout or Grid.of(labels)).labels(name, labels)
        return Labelled(states.flatten(0, 1)[marked.tokens], marked.targets)

    def _mask(self, config) -> Tensor:
        """The mask to pass to the library: prepared on a GPU, where the library would synchronise to look for padding.

        On a CPU, for models called as a whole and for other attention functions, it is the mask itself.
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

    So it is converted once per batch, not per layer. On a CPU, and with sampled rates, it is True for a real token.
    """
    keys = mask.bool()[:, None, None]
    if rates is not None or on_cpu(mask):
        return keys
    kind = mask.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.get_default_dtype()
    return torch.zeros(keys.shape, dtype=dtype, device=mask.device).masked_fill_(~keys, float("-inf"))
