"""How the parts of a model run on a batch: with its padding here, without it in `models.packed`.

Nothing outside these two files knows which of the two runs. What `embed` and `run` give and take as states is (B, L, H)
here and (1, N, H) there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask

from common.packing import Grid
from common.views import IGNORED
from models.families import embed, family_of, layers_of
from models.kernels.device import on_cpu
from models.perturb import UNCHANGED, Perturbation
from models.precision import at_least_float32

READY = ("sdpa", "packed")  # attention functions that take a ready mask
LOGITS = 1024  # tokens whose logits exist at the same time: 62 MB in bfloat16 with BERT's vocabulary
Read = Callable[..., Tensor]


class Labelled(NamedTuple):
    """States at the labelled tokens and some others, with their labels (IGNORED for the others), (M,)."""

    states: Tensor
    labels: Tensor


def earlier(length: int, device: torch.device) -> Tensor:
    """A mask that is True from each token to itself and to earlier ones, (1, 1, length, length)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


class Runner:
    """Layers on the padded batch, as the library runs them: the oracle of `Packed`, and the way of unknown families."""

    def __init__(self, attention_mask: Tensor, rates: Tensor | None = None, layout: Grid | None = None) -> None:
        self.mask, self.rates, self.layout = attention_mask, rates, layout

    @classmethod
    def of(cls, attention_mask: Tensor, rates: Tensor | None = None, layout: Grid | None = None) -> Runner:
        """For a batch with this mask, (B, L), its sentences' dropout rates, (B, O), and the mask's layout, if known."""
        return cls(attention_mask, rates, layout)

    @classmethod
    def prepare(cls, model: PreTrainedModel) -> type[Runner]:
        """Make a model run so; returns this, or the padded runner for a model that cannot."""
        return cls

    def causal(self) -> Runner:
        """The same batch, whose tokens attend to themselves and earlier ones only; its padding is on the right."""
        return type(self)(earlier(self.mask.shape[1], self.mask.device), self.rates, self.layout)

    def states(
        self, backbone: PreTrainedModel, input_ids: Tensor, change: Perturbation, all_layers: bool = False
    ) -> Sequence[Tensor]:
        """Ids (B, L) -> the last layer's states in a list, or those of the embeddings and every layer: (B, L, H)."""
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
        """What `read` makes of the logits of each real token, and of `others` (B, L): (B, L).

        `read` gets (..., vocabulary) and (...); the logits of about `LOGITS` tokens exist at a time.
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
        """What a part whose dropout is sampled takes beside its other arguments, see `kernels.dropout`."""
        return {} if self.rates is None else {"rates": self.rates[:, None, None]}

    def run(self, layers: Sequence[nn.Module], states: Tensor) -> Tensor:
        """Transformer layers in order, states -> states; padding is masked as the backbone itself masks it."""
        if len(layers) == 0:
            return states
        attention = layers[0].attention
        config = getattr(attention, "self", attention).config  # BERT has a module within
        mask = create_bidirectional_mask(config=config, inputs_embeds=states, attention_mask=self._mask(config))
        sampled = self.sampled()
        for layer in layers:
            states = layer(states, mask, **sampled)
        return states

    def run_every(self, layers: Sequence[nn.Module], states: Tensor, all_layers: bool) -> list[Tensor]:
        """The same; the last states in a list, or with `all_layers` those given and every layer's."""
        if not all_layers:
            return [self.run(layers, states)]
        every = [states]
        for layer in layers:
            every.append(self.run([layer], every[-1]))
        return every

    def run_first(self, layers: Sequence[nn.Module], states: Tensor) -> Tensor:
        """The same; the states of the first tokens, (B, H)."""
        return self.run(layers, states)[:, 0]

    def run_labelled(self, layers: Sequence[nn.Module], states: Tensor, labels: Tensor, name: str) -> Labelled:
        """The same; what a loss at the labels (B, L) reads. The layout may know them by name."""
        return self.labelled(self.run(layers, states), labels, name)

    def run_whole(self, backbone: PreTrainedModel, input_ids: Tensor, labels: Tensor, name: str) -> Labelled:
        """All of a backbone, ids (B, L) -> what a loss at the labels (B, L) reads."""
        return self.labelled(self.states(backbone, input_ids, UNCHANGED)[-1], labels, name)

    def run_both(
        self, layers: Sequence[nn.Module], states: Tensor, labels: Tensor, name: str
    ) -> tuple[Tensor, Labelled]:
        """`run_first` and `run_labelled` at once."""
        states = self.run(layers, states)
        return states[:, 0], self.labelled(states, labels, name)

    def with_first(self, states: Tensor, vectors: Tensor) -> Tensor:
        """[h ; M > 0]: the states with vectors (B, H) in the place of the first tokens."""
        return torch.cat([vectors.unsqueeze(1), states[:, 1:]], dim=1)

    def per_token(self, vectors: Tensor) -> Tensor:
        """Vectors of the sentences, (B, H), that broadcast to states."""
        return vectors.unsqueeze(1)

    def align(self, labels: Tensor) -> Tensor:
        """Labels (B, L) in the order of states; IGNORED where a state stands for no token."""
        return labels

    def token_loss(self, transform: nn.Module, decoder: nn.Linear, found: Labelled) -> tuple[Tensor, Tensor]:
        """Sum of the cross entropies of the labels, behind transform and vocabulary matrix, and their number.

        Logits exist only at the labelled tokens.
        """
        logits = decoder(transform(found.states))  # (M, vocabulary)
        total = F.cross_entropy(at_least_float32(logits), found.labels, ignore_index=IGNORED, reduction="sum")
        return total, (found.labels != IGNORED).sum()

    def labelled(self, states: Tensor, labels: Tensor, name: str) -> Labelled:
        """States of all tokens -> what a loss at the labels (B, L) reads."""
        found = (self.layout or Grid.of(labels)).labels(name, labels)
        return Labelled(states.flatten(0, 1)[found.tokens], found.targets)

    def _mask(self, config) -> Tensor:
        """What the library makes its mask from: on a CPU the mask itself, or the ready one.

        The library asks whether a mask has any padding, for which it would wait for a GPU.
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
    """A mask (B, L) as attention takes it, (B, 1, 1, L): what is added to the scores, in the type of their product.

    That is a conversion for each batch, not for each layer. Attention with sampled rates takes True for a real token.
    """
    keys = mask.bool()[:, None, None]
    if rates is not None or on_cpu(mask):
        return keys
    kind = mask.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.get_default_dtype()
    return torch.zeros(keys.shape, dtype=dtype, device=mask.device).masked_fill_(~keys, float("-inf"))
