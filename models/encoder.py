"""The artefact: a backbone, a pooling and, for pooling `cls`, a kept head.

What is evaluated and shipped.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

from common.errors import BadInput
from common.files import share_weights
from data.template import mask_place
from models import fast
from models.contrast import at_least_float32
from models.families import FAMILIES, attends_backwards, check_apart, embeddings_of, layers_of
from models.heads import Dense, Head, Normalize
from models.loading import (
    NO_LIMIT,
    load_backbone,
    load_config,
    load_strictly,
    load_tokenizer,
    quiet,
    usable_length,
)
from models.perturb import UNCHANGED, Perturbation
from models.pooling import masked_mean, pooling_named
from models.saved_format import FORMAT, Described, read_modules, write_modules

logger = logging.getLogger(__name__)
# a value of --pooling for commands that read a model; it is saved as `cls` with a head
POOLER = "pooler"


class EncoderOutput(NamedTuple):
    """Output of one forward: pooled vectors before any head, and states of the last layer.

    Attributes:
        pooled: the vectors, (B, H).
        cls: the state of the first token, (B, H).
        tokens: those of all tokens, (B, L, H), on request.
    """

    pooled: Tensor
    cls: Tensor
    tokens: Tensor | None = None


class Composite(PreTrainedModel):
    """A model of models, which arrive initialised or loaded, and with an attention of their own."""

    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True
    _can_set_experts_implementation = classmethod(lambda cls: True)

    def _init_weights(self, module: nn.Module) -> None:
        """Do nothing."""


class SentenceEncoder(Composite):
    """Sentences in, vectors out.

    Args:
        backbone: any Hugging Face encoder.
        pooling: a name from `models.pooling`.
        head: a module (T, H) -> (T, D) that belongs to the vector, or None.
        max_length: tokens per sentence, special tokens included, at which texts are truncated.
        packed: compute real tokens only, see `models.fast`; the same vectors; unsupported families
            run padded.
        train_pooling: pooling of `forward`, for methods whose loss sees another vector than is used
            after training (ConSERT section 4.1); `embed` and the saved model use `pooling`. None:
            the same.
        place: for pooling `mask`, the place of the mask, see `data.template.mask_place`.
        prompts: prefixes for texts by name, see `prompt_of`.
        default_prompt: the name of the one for texts that are neither queries nor documents.

    Raises:
        BadInput: an unknown pooling, or `mask` without a place.
    """

    def __init__(
        self,
        backbone: PreTrainedModel,
        pooling: str,
        head: nn.Module | None = None,
        max_length: int = 512,
        packed: bool = False,
        train_pooling: str | None = None,
        place: int | None = None,
        prompts: Mapping[str, str] = MappingProxyType({}),
        default_prompt: str | None = None,
    ) -> None:
        super().__init__(backbone.config)
        self.backbone, self.max_length = backbone, max_length
        self.head: Any = head
        self.prompts, self.default_prompt = dict(prompts), default_prompt
        self.pooling, self.place = pooling, place
        self._pooling = pooling_named(pooling)
        self._train_pooling = pooling_named(train_pooling or pooling)
        # Whether the saved model normalises its vectors, as the initial one did.
        self.normalized = False
        self.dropout_operations = 0  # those that take their rates from the batch
        if place is None and (self._pooling.at_mask or self._train_pooling.at_mask):
            raise BadInput(
                "pooling mask reads the mask of a template, but this tokenizer adds none: choose "
                "another pooling, or train with --method promptbert and a template with {mask}"
            )
        only_first = self._pooling.only_first or self._train_pooling.only_first
        if only_first and attends_backwards(backbone):
            flag = f"--train_pooling {train_pooling}"
            if self._pooling.only_first:
                flag = f"--pooling {pooling}"
            raise BadInput(
                f"{flag}: the first token of a '{self.config.model_type}' attends to no other; use "
                "avg or last_token"
            )
        fast.choose(backbone, packed)
        self.post_init()

    def prompt_of(self, role: str | None = None) -> str:
        """The prefix of a `query`, of a `document`, or of another text.

        As in sentence-transformers' `encode`: without a prompt of that name, a query or document
        gets none, not the default one.
        """
        name = role or self.default_prompt
        return "" if name is None else self.prompts.get(name, "")

    @property
    def packed(self) -> bool:
        """Whether only real tokens are computed."""
        return fast.is_packed(self.backbone.config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        rates: Tensor | None = None,
        perturbation: Perturbation | None = None,
        with_tokens: bool = False,
    ) -> EncoderOutput:
        """Return the pooled vectors for the loss, before the head, and the first token's state.

        Args:
            input_ids: (B, L).
            attention_mask: 1 for a real token, (B, L); None if all are, so that nothing is packed.
            rates: dropout rates of each sentence for an encoder with `sample_dropout`: (B, 1), or
                one per dropout operation, (B, O), in the order of `models.fast.dropout`.
            perturbation: changes the embeddings.
            with_tokens: also return the last layer's states of all tokens; those of padding are
                meaningless.
        """
        if perturbation is not None:
            check_apart(self.config, "a view with perturbed embeddings")
        return self._encode(
            input_ids, attention_mask, self._train_pooling, rates, perturbation, with_tokens
        )

    def _encode(
        self, input_ids, attention_mask, pooling, rates=None, change=None, with_tokens=False
    ) -> EncoderOutput:
        backbone, change = self.backbone, change or UNCHANGED
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        tokens = fast.tokens_of(None if attention_mask is None else backbone.config, mask, rates)
        if pooling.only_first and not with_tokens:
            cls = tokens.encode(backbone, input_ids, change).first
            return EncoderOutput(cls, cls)
        if pooling.layers:
            states = tokens.every(backbone, input_ids, change)
        else:
            states = [tokens.encode(backbone, input_ids, change).padded]
        pooled = pooling.pool(states, mask, self.place)
        return EncoderOutput(pooled, states[-1][:, 0], states[-1] if with_tokens else None)

    def states(self, input_ids: Tensor, attention_mask: Tensor) -> fast.States:
        """The last layer's states of other texts than those of `Encoded`, for a token loss."""
        return fast.tokens_of(self.backbone.config, attention_mask).encode(
            self.backbone, input_ids, UNCHANGED
        )

    def layer_means(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Means over the real tokens of the embeddings and each layer: (B, L) -> (1 + N, B, H)."""
        layers = fast.tokens_of(self.backbone.config, attention_mask).every(
            self.backbone, input_ids, UNCHANGED
        )
        return torch.stack([masked_mean(states, attention_mask) for states in layers])

    def sample_dropout(self) -> None:
        """Let dropout take its rates from each forward pass; BadInput for an unknown backbone."""
        check_apart(self.config, "sampled dropout")
        parts = [*embeddings_of(self.backbone).values(), *layers_of(self.backbone)]
        self.dropout_operations = fast.sample_dropout(self.backbone, parts)

    def embed(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The sentence vectors, (B, D), with the kept head applied."""
        pooled = at_least_float32(self._encode(input_ids, attention_mask, self._pooling).pooled)
        return pooled if self.head is None else self.head(pooled)

    def save(self, folder: str | Path, tokenizer) -> None:
        """Write saved format 1, for `AutoModel`, sentence-transformers and this project."""
        dense: list[nn.Module] = self.head.dense_layers() if self.head is not None else []
        head = [*dense, Normalize()] if self.normalizes else dense
        described = Described(
            self.pooling, head, self.max_length, self.prompts, self.default_prompt
        )
        backbone = copy.copy(self.backbone)
        backbone.config = copy.deepcopy(self.backbone.config)
        backbone.config.sentence_embedding = {
            "format": FORMAT,
            "pooling": self.pooling,
            "head": len(dense) or None,
            "max_length": self.max_length,
        }
        if self.normalizes:
            backbone.config.sentence_embedding["normalize"] = True
        with quiet():
            backbone.save_pretrained(folder)
        saved = copy.deepcopy(tokenizer)  # with the length limit of the encoder
        saved.model_max_length = self.max_length
        if self.config.model_type not in FAMILIES:  # it may add a vector for token types
            names = ["input_ids", "attention_mask"]
            saved.model_input_names = saved.init_kwargs["model_input_names"] = names
        saved.save_pretrained(folder)
        write_modules(Path(folder), described, self.backbone, tokenizer)
        share_weights(Path(folder))

    @property
    def normalizes(self) -> bool:
        """Whether the saved model's vectors have length one."""
        return self.normalized or getattr(self.head, "normalizes", False)


def load_encoder(
    path: str,
    pooling: str | None = None,
    max_length: int | None = None,
    prompts: Mapping[str, str | None] = MappingProxyType({}),
):
    """Load the SentenceEncoder and the tokenizer of any model folder or hub id.

    A model is pooled as its folder says; `pooling`, if given, replaces this and drops the head;
    `pooler` is [CLS] behind the checkpoint's own pooler. `prompts`, for `query` and `document`,
    replace the model's unless None. BadInput if the model does not exist or lacks tensors, or for a
    plain encoder without `pooling`.
    """
    config, tokenizer = load_config(path), load_tokenizer(path)
    description = described(path, config, pooling)
    least = tokenizer.num_special_tokens_to_add() + 1
    if max_length is not None and (not isinstance(max_length, int) or max_length < least):
        fit = "to fit a token besides the special ones"
        raise BadInput(f"--max_length {max_length}: must be an integer of at least {least}, {fit}")
    backbone = load_backbone(path, config)
    limit = usable_length(backbone, tokenizer, description.max_length)
    length = min(max_length or description.max_length or NO_LIMIT, limit)
    if max_length and max_length > limit:
        said = "--max_length %d: '%s' takes at most %d tokens; longer texts are cut there"
        logger.warning(said, max_length, path, limit)
    head = Head(*description.head) if description.head else None
    encoder = SentenceEncoder(
        backbone,
        description.pooling,
        head,
        length,
        packed=True,
        place=mask_place(tokenizer),
        prompts={**description.prompts, **given(prompts)},
        default_prompt=description.default_prompt,
    )
    named = [name for name in ("passage", "corpus") if encoder.prompts.get(name)]
    if named and not encoder.prompts.get("document") and prompts.get("document") is None:
        said = "'%s' names its prompt for documents '%s', which nothing reads: --document_prompt %r"
        logger.warning(said, path, named[0], encoder.prompts[named[0]])
    return encoder, tokenizer


def given(prompts: Mapping[str, str | None]) -> dict[str, str]:
    """The prompts that are not None."""
    return {name: text for name, text in prompts.items() if text is not None}


def _pooler_of(path: str, config) -> Dense:
    """Load a checkpoint's pooler, tanh(W [CLS] + b).

    SimCSE's published supervised models keep their head in it: the head itself, `mlp.dense`, if the
    checkpoint has not been converted. BadInput if it has neither.
    """
    pooler = getattr(load_strictly(AutoModel, path, config, simcse_head=True), "pooler", None)
    if pooler is None or not isinstance(getattr(pooler, "activation", None), nn.Tanh):
        raise BadInput(
            f"'{path}': a '{config.model_type}' has no pooler tanh(W [CLS] + b); use another "
            "--pooling"
        )
    return Dense(pooler.dense, "Tanh")


def described(path: str, config, pooling: str | None = None) -> Described:
    """How a model makes vectors, from its folder or by `pooling`; BadInput as in `load_encoder`."""
    stated = read_modules(path, needed=pooling is None)
    if pooling is None:
        if stated is None:
            raise BadInput(
                f"'{path}' does not state its pooling; give --pooling (cls_before_pooler for the "
                "SimCSE family, avg for most others)"
            )
        return stated
    head = [_pooler_of(path, config)] if pooling == POOLER else []
    name = "cls" if head else pooling
    if pooling_named(name).keeps_head and not head:
        raise BadInput("--pooling cls needs a model with a trained head; use cls_before_pooler")
    if stated is None:
        return Described(name, head, None)
    description = stated._replace(pooling=name, head=head)
    if description != stated:
        dropped = ", and drops its head" if stated.head else ""
        logger.warning(
            "'%s': pooling %s replaces its own, %s%s", path, pooling, stated.pooling, dropped
        )
    return description
