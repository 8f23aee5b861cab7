"""Poolings: from the hidden states of a backbone to one vector per sentence, without parameters.

Sources: SimCSE (arXiv 2104.08821) section 6.3 and its released code for the names; InfoCSE Table 9
for `cls_before_pooler`; PromptBERT (arXiv 2201.04337) for `mask`. Two definitions of "first-last
average" are published under one name: SimCSE's table averages the embedding layer and the last
layer (56.70 on STS for bert-base), its corrected code the first and the last transformer layer
(60.73). They have two names here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from common.errors import BadInput


def masked_mean(tokens: Tensor, mask: Tensor) -> Tensor:
    """Mean over the real tokens: (B, L, H), mask (B, L) -> (B, H); 0 without tokens."""
    weights = mask.unsqueeze(-1).to(tokens.dtype)  # (B, L, 1)
    return (tokens * weights).sum(1) / weights.sum(1).clamp(min=1)


def _first(states: Sequence[Tensor], mask: Tensor, place: int | None = None) -> Tensor:
    return states[-1][:, 0]


def _last(states: Sequence[Tensor], mask: Tensor, place: int | None = None) -> Tensor:
    """The state of each row's last real token, with padding on either side; 0 without tokens."""
    positions = (mask * torch.arange(mask.shape[1], device=mask.device)).amax(1)
    return _at(states[-1], positions) * _at(mask, positions).unsqueeze(1).to(states[-1].dtype)


def _masked(states: Sequence[Tensor], mask: Tensor, place: int) -> Tensor:
    positions = torch.full_like(mask[:, 0], place) if place >= 0 else mask.sum(1) + place
    return _at(states[-1], positions)


def _at(tokens: Tensor, positions: Tensor) -> Tensor:
    """Select one token per row, (B, L, ...) and (B,) -> (B, ...)."""
    return tokens[torch.arange(tokens.shape[0], device=tokens.device), positions]


def _mean_of(*layers: int) -> Callable[..., Tensor]:
    def pool(states: Sequence[Tensor], mask: Tensor, place: int | None = None) -> Tensor:
        first, *others = (states[layer] for layer in layers)
        return masked_mean(sum(others, first) / len(layers), mask)

    return pool


@dataclass(frozen=True)
class Pooling:
    """How vectors are pooled from the states of tokens.

    Attributes:
        pool: `pool(states, mask, place)`; the outputs of embeddings and layers, (B, L, H) each, and
            the place of the mask in the tokenizer's template, see `data.template.Frame.position`.
        layers: hidden states to average, 0 being the embeddings; (): the last one is enough.
        keeps_head: the projection head of training is part of the encoder (pooling `cls`).
        only_first: reads only the first token of the last layer.
        at_mask: reads only the mask of the tokenizer's template.
        module: the name in sentence-transformers, after a module for `layers` or `at_mask`.
    """

    pool: Callable[..., Tensor]
    layers: tuple[int, ...] = ()
    keeps_head: bool = False
    only_first: bool = False
    at_mask: bool = False
    module: str = "mean"


def _average_of(*layers: int) -> Pooling:
    return Pooling(_mean_of(*layers), layers)


POOLINGS = {
    "cls": Pooling(_first, keeps_head=True, only_first=True, module="cls"),
    "cls_before_pooler": Pooling(_first, only_first=True, module="cls"),
    "last_token": Pooling(_last, module="lasttoken"),
    "avg": Pooling(_mean_of(-1)),
    "avg_top2": _average_of(-1, -2),
    "avg_first_last": _average_of(1, -1),
    "avg_embedding_last": _average_of(0, -1),
    "mask": Pooling(_masked, at_mask=True),  # a mean with weight 0 for all tokens but the mask
}


def pooling_named(name: str) -> Pooling:
    """Return the pooling of that name; BadInput if unknown."""
    if name not in POOLINGS:
        names = ", ".join(POOLINGS)
        raise BadInput(f"unknown pooling '{name}'; choose from {names} (avg is the mean)")
    return POOLINGS[name]
