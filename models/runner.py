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

from common.views import IGNORED
from models.kernels.dropout import rates_of
from models.perturb import Perturbation
from models.precision import at_least_float32

ROWS = 128  # masked positions are computed in multiples of it
LOGITS = 1024  # tokens whose logits exist at the same time: 62 MB in bfloat16 with BERT's vocabulary
Read = Callable[..., Tensor]


class Labelled(NamedTuple):
    """States at the labelled tokens, and maybe others, with their labels (IGNORED for the others)."""

    states: Tensor
    labels: Tensor


def earlier(length: int, device: torch.device) -> Tensor:
    """A mask that is True from each token to itself and to earlier ones, (1, 1, length, length)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


class Runner:
    """Layers on the padded batch, as the library runs them: the oracle of `Packed`, and the way of unknown families."""

    def __init__(self, attention_mask: Tensor, rates: Tensor | None = None) -> None:
        self.mask, self.rates = attention_mask, rates

    @classmethod
    def of(cls, attention_mask: Tensor, rates: Tensor | None = None) -> Runner:
        """For a batch with this mask, (B, L), and dropout rates of its sentences, (B, O); see `kernels.dropout`."""
        return cls(attention_mask, rates)

    @classmethod
    def prepare(cls, model: PreTrainedModel) -> None:
        """Make a model run so; every model runs padded."""

    @classmethod
    def fitting(cls, config) -> type[Runner]:
        """This runner, or the padded one for a model of an unknown family."""
        return cls

    def causal(self) -> Runner:
        """The same batch, whose tokens attend to themselves and earlier ones only; its padding is on the right."""
        return type(self)(earlier(self.mask.shape[1], self.mask.device), self.rates)

    def states(
        self, backbone: PreTrainedModel, input_ids: Tensor, change: Perturbation, all_layers: bool = False
    ) -> Sequence[Tensor]:
        """Ids (B, L) -> the last layer's states in a list, or those of the embeddings and every layer: (B, L, H)."""
        extra = {"output_hidden_states": all_layers}
        if change.positions is not None:
            extra["position_ids"] = change.position_ids(backbone.embeddings)
        with rates_of(None if self.rates is None else self.rates[:, None, None]), change.within(backbone):
            output = backbone(input_ids=input_ids, attention_mask=self.mask, **extra)
        return output.hidden_states if all_layers else [output.last_hidden_state]

    def first_states(self, backbone: PreTrainedModel, input_ids: Tensor, change: Perturbation) -> Tensor:
        """Ids (B, L) -> the last layer's states of the first tokens, (B, H)."""
        return self.states(backbone, input_ids, change)[-1][:, 0]

    def logits(self, lm: PreTrainedModel, input_ids: Tensor, read: Read, *others: Tensor | None) -> Tensor:
        """What `read` makes of the logits of each real token, and of `others` (B, L): (B, L).

        `read` gets (..., vocabulary) and (...); the logits of about `LOGITS` tokens exist at a time.
        """
        parts = []
        for rows in torch.arange(len(input_ids), device=input_ids.device).split(max(1, LOGITS // input_ids.shape[1])):
            logits = lm(input_ids=input_ids[rows], attention_mask=self.mask[rows]).logits
            parts.append(read(logits, *(None if other is None else other[rows] for other in others)))
        return torch.cat(parts)

    def embed(self, embeddings: nn.Module, input_ids: Tensor) -> Tensor:
        """Ids (B, L) -> states."""
        return embeddings(input_ids=input_ids)

    def run(self, layers: Sequence[nn.Module], states: Tensor) -> Tensor:
        """Transformer layers in order, states -> states; padding is masked as the backbone itself masks it."""
        if len(layers) == 0:
            return states
        config = layers[0].attention.self.config
        mask = create_bidirectional_mask(config=config, inputs_embeds=states, attention_mask=self.mask)
        for layer in layers:
            states = layer(states, mask)
        return states

    def run_first(self, layers: Sequence[nn.Module], states: Tensor) -> Tensor:
        """The same; the states of the first tokens, (B, H)."""
        return self.run(layers, states)[:, 0]

    def run_labelled(self, layers: Sequence[nn.Module], states: Tensor, labels: Tensor) -> Labelled:
        """The same; what a loss at the labels (B, L) reads."""
        return Labelled(self.run(layers, states), labels)

    def run_both(self, layers: Sequence[nn.Module], states: Tensor, labels: Tensor) -> tuple[Tensor, Labelled]:
        """`run_first` and `run_labelled` at once."""
        states = self.run(layers, states)
        return states[:, 0], Labelled(states, labels)

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

        Logits exist only at the labelled tokens. Their number is filled up to a multiple of `ROWS`: oneDNN keeps a
        primitive for every shape it has seen, and with a new number in every step bfloat16 training on a CPU would grow
        by tens of megabytes a step.
        """
        chosen = found.labels != IGNORED
        targets = found.labels[chosen]
        filled = -len(targets) % ROWS
        logits = decoder(transform(F.pad(found.states[chosen], (0, 0, 0, filled))))  # (M rounded up, vocabulary)
        targets = F.pad(targets, (0, filled), value=IGNORED)
        return F.cross_entropy(at_least_float32(logits), targets, ignore_index=IGNORED, reduction="sum"), chosen.sum()
