"""The auxiliary network of InfoCSE (arXiv 2210.06432, section 3.1), built from parts of a backbone.

It is Condenser's head (Gao and Callan 2021, arXiv 2104.08253): a few transformer layers over
[[CLS] of the last layer ; states of layer `skip_from`, positions > 0] that predict masked tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedModel

from common.errors import BadInput, brief
from models import fast
from models.families import WITH_HEAD, check_apart, embeddings_of, family_of, layers_of, output_of
from models.folder import fetch, read_tensors
from models.loading import load_backbone, load_config, load_strictly
from models.perturb import UNCHANGED

if TYPE_CHECKING:
    from models.encoder import SentenceEncoder

HEAD_FILE = "aux_head.safetensors"
CONDENSER_FILE = "model.pt"
PREFIX = "c_head."
_LOGITS = 1024  # tokens with logits in memory at once: 62 MB in bfloat16 with BERT's vocabulary


def load_masked_lm(path: str, config=None, new_output: bool = False) -> PreTrainedModel:
    """Load a `*ForMaskedLM` of a family whose head is known, every tensor from the file.

    BadInput otherwise. With `new_output`, the output head is new and only the backbone is read.
    """
    config = config if config is not None else load_config(path)
    if not family_of(config).transform:
        raise BadInput(
            f"'{path}': this method needs a masked-language-model head of a known family "
            f"({WITH_HEAD}), not that of a '{config.model_type}'; purely contrastive methods work "
            "without one"
        )
    if new_output:
        lm = AutoModelForMaskedLM.from_config(config, dtype=torch.float32)
        lm.base_model.load_state_dict(load_backbone(path, config).state_dict())
        return lm
    without = (
        "start from a run of stage 1 or a pre-trained model, which have the MLM head, or give "
        "stage 1 --output_init new"
    )
    return load_strictly(AutoModelForMaskedLM, path, config, without)


def check_depth(config, skip_from: int) -> None:
    """Refuse a layer the backbone does not have, or its last one, which the head sees anyway."""
    last = config.num_hidden_layers - 1
    if not 0 <= skip_from <= last:
        raise BadInput(
            f"--skip_from {skip_from}: must be from 0 to {last} for this backbone; auto takes the "
            "layer of stage 1, else the middle one (6 of 12, 3 of 6)"
        )


embedded = fast.embedded  # for methods, which do not enter the fast path themselves


class LowerLayers(nn.Module):
    """A copy of the embeddings and the first `skip_from` layers: ids (B, L) -> states."""

    def __init__(self, backbone: PreTrainedModel, skip_from: int) -> None:
        super().__init__()
        self.config = backbone.config
        check_apart(self.config, "the auxiliary network")
        check_depth(self.config, skip_from)
        for name, part in embeddings_of(backbone).items():
            self.add_module(name, copy.deepcopy(part))
        self.layers = copy.deepcopy(layers_of(backbone)[:skip_from])

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> fast.States:
        return fast.embedded(self, input_ids, attention_mask).through(self.layers, late=False)


class VocabularyHead(nn.Module):
    """An untied copy of a model's output head: (M, H) -> (M, vocabulary)."""

    def __init__(self, lm: PreTrainedModel) -> None:
        super().__init__()
        transform, decoder = output_of(lm)
        self.transform = copy.deepcopy(transform)
        self.decoder = nn.Linear(
            decoder.in_features, decoder.out_features, bias=decoder.bias is not None
        )
        self.decoder.load_state_dict(decoder.state_dict())

    def token_loss(self, states: fast.States, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Sum of the cross entropies of the labels, (B, L), and their number.

        Logits are computed only where there is a label.
        """
        return fast.token_loss(self.transform, self.decoder, states.labelled(labels))


@dataclass(frozen=True)
class Words:
    """The last step to logits, (..., H) -> (..., vocabulary)."""

    weight: Tensor
    bias: Tensor

    def __call__(self, states: Tensor) -> Tensor:
        return F.linear(states, self.weight, self.bias)


class TiedHead(nn.Module):
    """A model's output head, whose matrix is the encoder's word embeddings, not a copy.

    Only a checkpoint with an untied matrix keeps its own.
    """

    def __init__(self, lm: PreTrainedModel) -> None:
        super().__init__()
        transform, decoder = output_of(lm)
        self.transform, self.bias = copy.deepcopy(transform), copy.deepcopy(decoder.bias)
        tied = decoder.weight is lm.get_input_embeddings().weight
        self.weight = None if tied else copy.deepcopy(decoder.weight)

    def words(self, backbone: PreTrainedModel) -> Words:
        """The step after the transform, with the embeddings of the encoder's backbone."""
        weight: Any = backbone.get_input_embeddings().weight if self.weight is None else self.weight
        return Words(weight, self.bias)

    def token_loss(
        self, backbone: PreTrainedModel, states: fast.States, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As `VocabularyHead.token_loss`, with the embeddings of the encoder's backbone."""
        return fast.token_loss(self.transform, self.words(backbone), states.labelled(labels))


def run_like(encoder: SentenceEncoder, *networks: PreTrainedModel) -> None:
    """Let a method's networks skip the padding if the encoder does."""
    for network in networks:
        fast.choose(network, encoder.packed)


def read_logits(
    lm: PreTrainedModel, input_ids: Tensor, mask: Tensor, read: Callable[[Tensor], Tensor]
) -> Tensor:
    """Apply `read` to the logits of each real token, (..., vocabulary) -> (...): (B, L) -> (B, L).

    The logits of about a thousand tokens are in memory at once.
    """
    tokens, (transform, decoder) = fast.tokens_of(lm.config, mask), output_of(lm)
    backbone: Any = lm.base_model
    states = tokens.encode(backbone, input_ids, UNCHANGED).all
    parts = []
    for some in states.flatten(0, 1).split(_LOGITS):
        parts.append(read(decoder(transform(some))))
    return tokens.unpack(torch.cat(parts).view(*states.shape[:2], 1)).squeeze(-1)


def new_head(backbone: PreTrainedModel, count: int) -> nn.ModuleList:
    """Create `count` transformer layers like the backbone's, with its initialisation."""
    layer = type(layers_of(backbone)[0])
    layers = nn.ModuleList(layer(backbone.config) for _ in range(count))
    layers.apply(backbone._init_weights)
    return layers


def top_layers(backbone: PreTrainedModel, count: int) -> nn.ModuleList:
    """Copy the backbone's last `count` layers; they share its configuration."""
    layers = layers_of(backbone)
    if not 0 < count <= len(layers):
        raise BadInput(
            f"--head_layers {count}: must be from 1 to {len(layers)}, the backbone's layers"
        )
    return copy.deepcopy(layers[-count:], {id(backbone.config): backbone.config})


def read_head(path: str) -> dict[str, Tensor] | None:
    """Read the auxiliary layers in a local folder (ours, or Condenser's), or None."""
    file = None
    if Path(path).is_dir():
        file = fetch(path, HEAD_FILE) or fetch(path, CONDENSER_FILE)
    if file is None:
        return None
    tensors = read_tensors(file)
    tensors.pop("co_target", None)  # coCondenser's labels, a buffer of its loss
    return {name.removeprefix(PREFIX): value for name, value in tensors.items()}


def load_head(
    path: str, backbone: PreTrainedModel, count: int, skip_from: int
) -> nn.ModuleList | None:
    """Load the pre-trained auxiliary layers of a checkpoint, or None if it has none.

    Raises:
        BadInput: the tensors do not match, or the layers were trained on the states of another
            layer.
    """
    tensors = read_head(path)
    if tensors is None:
        return None
    trained_at = getattr(backbone.config, "skip_from", skip_from)
    if trained_at != skip_from:
        raise BadInput(
            f"--skip_from {skip_from}: the head in '{path}' was trained with skip_from {trained_at}"
        )
    layers = new_head(backbone, count)
    try:
        layers.load_state_dict(tensors)
    except RuntimeError as error:
        raise BadInput(
            f"the auxiliary head in '{path}' does not fit --head_layers {count}: {brief(error)}"
        ) from error
    return layers
