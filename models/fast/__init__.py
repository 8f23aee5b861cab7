"""The fast path: real tokens only, light dropout on a CPU, half precision that changes no number.

The encoder and the networks of `models.auxiliary` enter here, methods never do: this file alone
decides whether a model runs on all positions of a batch or, `packed`, without its padding, and both
give `States`.
"""

import logging
from collections.abc import Iterable

from torch import Tensor, nn
from transformers import PreTrainedModel

from models.families import APART, packs
from models.fast import packed
from models.fast.casting import cast_matrices, cast_together
from models.fast.dropout import hand_down, lighten_dropout
from models.fast.packing import EDGE, Shares, fixed, shares_of
from models.fast.tokens import SAMPLED, Padded, States, Tokens, token_loss

__all__ = [
    "EDGE",
    "Shares",
    "States",
    "cast_matrices",
    "cast_together",
    "fixed",
    "lighten_dropout",
    "shares_of",
    "token_loss",
]
logger = logging.getLogger(__name__)


def choose(model: PreTrainedModel, pack: bool) -> None:
    """Let a model run on real tokens only, if its family supports it, or with padding.

    Its attention function says which, so parts and copies of the model follow. Its padded call does
    not change.
    """
    if pack and packs(model.config):
        model.set_attn_implementation(packed.NAME)
    elif pack:
        logger.info("%s: runs padded; packing supports %s", model.config.model_type, APART)
    elif is_packed(model.config):
        model.set_attn_implementation("sdpa")


def is_packed(config) -> bool:
    """Whether `choose` packed the model with this configuration."""
    return config._attn_implementation == packed.NAME


def sample_dropout(model: PreTrainedModel, parts: Iterable[nn.Module]) -> int:
    """As `lighten_dropout`; the parts, and attention with padding too, then take `rates`."""
    for part in parts:
        part.register_forward_pre_hook(hand_down, with_kwargs=True)
    operations = lighten_dropout(model)
    if not is_packed(model.config):
        model.set_attn_implementation(SAMPLED)
    return operations


def tokens_of(config, mask: Tensor, rates: Tensor | None = None) -> Tokens:
    """The tokens of a batch for a model with this configuration; None: with padding.

    `mask` is 1 for a real token, (B, L); `rates` are the sentences' dropout rates, (B, O).
    """
    if config and is_packed(config):
        return packed.Packed.of(mask, rates)
    return Padded.of(mask, rates)


def embedded(model: nn.Module, input_ids: Tensor, mask: Tensor, causal: bool = False) -> States:
    """Ids (B, L) -> the input of the first layer.

    The model is a backbone, or a copy of its embeddings with a `config`. With `causal` no token
    sees those behind it.
    """
    tokens = tokens_of(model.config, mask)
    tokens = tokens.causal() if causal else tokens
    return States(tokens, tokens.embed(model, input_ids))
