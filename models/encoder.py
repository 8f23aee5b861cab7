"""The artefact: a backbone, a pooling and, for pooling `cls`, a kept head. What is evaluated and shipped."""

from __future__ import annotations

import copy
import inspect
from typing import NamedTuple

from torch import Tensor, nn
from transformers import MODEL_MAPPING, AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel

from errors import BadInput
from models import layout
from models.dropout import exchange_dropout, rates_of
from models.heads import SavedHead
from models.loading import load_strictly, quiet
from models.packed import FAMILIES, Packing, make_packable, use_packing
from models.pooling import pooling_named
from models.rows import rounded
from views import IGNORED


class EncoderOutput(NamedTuple):
    """What one forward gives: the pooled vectors before any head, and the last layer's first token."""

    pooled: Tensor  # (B, H)
    cls: Tensor  # (B, H)


class SentenceEncoder(PreTrainedModel):
    """Sentences in, vectors out.

    Args:
        backbone: any Hugging Face encoder (its own `PreTrainedModel`).
        pooling: a name from `models.pooling`.
        head: a module (T, H) -> (T, D) that belongs to the vector, or None.
        max_length: tokens per sentence, special ones included, at which texts are cut when they are encoded.
        packed: compute real tokens only, see `models.packed`; the same vectors, for families it knows.
    """

    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True

    def __init__(
        self,
        backbone: PreTrainedModel,
        pooling: str,
        head: nn.Module | None = None,
        max_length: int = 512,
        packed: bool = False,
    ) -> None:
        super().__init__(backbone.config)
        self.backbone = backbone
        self.pooling = pooling
        self.head = head
        self.max_length = max_length
        self.packed = packed
        self._pooling = pooling_named(pooling)
        if packed:
            make_packable(backbone)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: every part arrives initialised or loaded, and must not be drawn anew."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor, rates: Tensor | None = None) -> EncoderOutput:
        """(B, L) ids and mask -> pooled vectors before the head and the first token's state.

        `rates`, (B,), are dropout rates of each sentence for an encoder with `sample_dropout`.
        """
        if self.packed:
            return self._forward_packed(input_ids, Packing.of(attention_mask, rates), attention_mask)
        with rates_of(None if rates is None else rates.view(-1, 1, 1)):
            output = self.backbone(
                input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=self._pooling.all_layers
            )
        states = output.hidden_states if self._pooling.all_layers else [output.last_hidden_state]
        return EncoderOutput(self._pooling.pool(states, attention_mask), output.last_hidden_state[:, 0])

    def _forward_packed(self, input_ids: Tensor, packing: Packing, attention_mask: Tensor) -> EncoderOutput:
        """The same without padding, and in the last layer for the first tokens only where nothing else is read."""
        layers = self.backbone.encoder.layer
        # (1, N, H), token i at packing.row[i], packing.position[i]: where a view would change embeddings.
        states = packing.embed(self.backbone.embeddings, input_ids)
        if self._pooling.only_first:
            cls = packing.run(layers, states, packing.first)[0]
            return EncoderOutput(cls, cls)
        every = [states]
        for layer in layers:
            every.append(packing.run([layer], every[-1]))
        kept = every if self._pooling.all_layers else every[-1:]
        pooled = self._pooling.pool([packing.unpack(states) for states in kept], attention_mask)
        return EncoderOutput(pooled, packing.at(every[-1], packing.first)[0])

    def token_states(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The last layer's states at the labelled tokens and some others, and the labels: (M, H), (M,)."""
        if self.packed:
            packing = Packing.of(attention_mask)
            tokens, targets = packing.labelled(labels)
            states = packing.embed(self.backbone.embeddings, input_ids)
            return packing.run(self.backbone.encoder.layer, states, tokens)[0], targets
        states = self.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        chosen = rounded((labels != IGNORED).flatten(), True)
        return states.flatten(0, 1)[chosen], labels.flatten()[chosen]

    def sample_dropout(self) -> None:
        """Let dropout take its rates from each forward pass; BadInput for a backbone whose attention is unknown."""
        if self.config.model_type not in FAMILIES:
            raise BadInput(f"sampled dropout knows the layers of {', '.join(FAMILIES)}, not '{self.config.model_type}'")
        exchange_dropout(self.backbone)
        make_packable(self.backbone)

    def embed(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The sentence vectors, (B, D), with the kept head applied."""
        pooled = self(input_ids, attention_mask).pooled.float()
        return pooled if self.head is None else self.head(pooled)

    def save(self, folder: str, tokenizer) -> None:
        """Write saved format 1: a folder that `AutoModel`, sentence-transformers and this project read alike."""
        dense = self.head.dense_layers() if self.head is not None else []
        backbone = copy.copy(self.backbone)
        backbone.config = copy.deepcopy(self.backbone.config)
        backbone.config.sentence_embedding = {
            "format": layout.FORMAT,
            "pooling": self.pooling,
            "head": len(dense) or None,
            "max_length": self.max_length,
        }
        with quiet():
            backbone.save_pretrained(folder)
        saved = copy.deepcopy(tokenizer)  # the length limit of the encoder, not of whoever used the tokenizer
        saved.model_max_length = self.max_length
        saved.save_pretrained(folder)
        layout.write_modules(folder, self._pooling.module, dense, self.max_length, self.config.hidden_size)


def load_backbone(path: str, config=None) -> PreTrainedModel:
    """`AutoModel` without a pooler, every tensor from the file; BadInput names what is missing."""
    config = config if config is not None else load_config(path)
    known = MODEL_MAPPING[type(config)]
    known = known[0] if isinstance(known, tuple) else known
    # A pooler nobody reads would be random weights in the file, and unused parameters under DDP.
    extra = {"add_pooling_layer": False} if "add_pooling_layer" in inspect.signature(known).parameters else {}
    return load_strictly(AutoModel, path, config, **extra)


def load_config(path: str):
    """The configuration of a folder or hub id; BadInput when there is none."""
    try:
        return AutoConfig.from_pretrained(path, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot read the configuration of '{path}': {str(error).splitlines()[0]}") from error


def load_tokenizer(path: str):
    """The fast tokenizer of a folder or hub id; BadInput when there is none."""
    try:
        return AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise BadInput(f"cannot load a tokenizer from '{path}': {str(error).splitlines()[0]}") from error


def usable_length(config, tokenizer) -> int:
    """How many tokens a sentence may have: what both the position table and the tokenizer allow."""
    positions = getattr(config, "max_position_embeddings", None) or tokenizer.model_max_length
    if config.model_type in ("roberta", "xlm-roberta", "camembert"):
        positions -= config.pad_token_id + 1  # their positions start behind the padding index
    return min(positions, tokenizer.model_max_length)


def load_encoder(path: str, pooling: str | None = None, max_length: int | None = None):
    """Read a run, an export, a sentence-transformers folder or any Hugging Face encoder.

    Returns (SentenceEncoder, tokenizer). A model that says how it is pooled is pooled so; `pooling` replaces it,
    without its head, only when given by name.

    Raises:
        BadInput: no such model, missing tensors, or a plain encoder without `pooling`.
    """
    config, tokenizer = load_config(path), load_tokenizer(path)
    described = layout.read_modules(path, config)
    if described is None and pooling is None:
        raise BadInput(
            f"'{path}' does not say how its token vectors become a sentence vector; give --pooling "
            "(cls_before_pooler for the SimCSE family, avg for most others)"
        )
    if pooling is not None:
        if pooling_named(pooling).keeps_head:
            raise BadInput("--pooling cls needs a trained head, which is read from the model; use cls_before_pooler")
        described = layout.Described(pooling, [], described.max_length if described else None)
    length = min(max_length or described.max_length or 10**9, usable_length(config, tokenizer))
    head = SavedHead(*described.head) if described.head else None
    packed = use_packing(config, True)
    return SentenceEncoder(load_backbone(path, config), described.pooling, head, length, packed), tokenizer
