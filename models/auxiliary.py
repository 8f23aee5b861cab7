"""The pieces of a backbone, and the auxiliary network made of them.

The auxiliary network of InfoCSE (arXiv 2210.06432, section 3.1) is Condenser's head (Gao and Callan 2021, arXiv
2104.08253): a few transformer layers over [[CLS] of the last layer ; states of layer `skip_from`, positions > 0] that
predict masked tokens. Only this file takes a backbone apart; BERT and RoBERTa are known.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask

from common.errors import BadInput
from common.views import IGNORED
from models.folder import MOST_LAYERS
from models.loading import check_finite, load_config, load_strictly, read_tensors
from models.packed import Packing

HEAD_FILE = "aux_head.safetensors"
CONDENSER_FILE = "model.pt"
PREFIX = "c_head."
ROWS = 128  # masked positions are computed in multiples of it


@dataclass(frozen=True)
class Family:
    """Where a `*ForMaskedLM` keeps its parts."""

    base: str
    output: str  # the module from hidden states to logits
    transform: Callable[[nn.Module], nn.Module]  # its part before the vocabulary matrix


def _roberta_transform(head: nn.Module) -> nn.Module:
    return nn.Sequential(head.dense, nn.GELU(), head.layer_norm)


FAMILIES = {
    "bert": Family("bert", "cls.predictions", lambda head: head.transform),
    "roberta": Family("roberta", "lm_head", _roberta_transform),
}


def family_of(config) -> Family:
    """The known family of a configuration; BadInput for others."""
    if config.model_type not in FAMILIES:
        raise BadInput(
            f"the auxiliary network needs the pieces of a backbone and knows {', '.join(FAMILIES)}, "
            f"not '{config.model_type}'; purely contrastive methods work with any encoder"
        )
    return FAMILIES[config.model_type]


def load_masked_lm(path: str, config=None) -> PreTrainedModel:
    """A `*ForMaskedLM` with every tensor from the file; BadInput otherwise."""
    config = config if config is not None else load_config(path)
    family_of(config)
    return load_strictly(AutoModelForMaskedLM, path, config)


def backbone_of(lm: PreTrainedModel) -> PreTrainedModel:
    """The encoder inside a masked language model."""
    return getattr(lm, family_of(lm.config).base)


def check_depth(config, skip_from: int) -> None:
    """Refuse a layer the backbone does not have, or its last one, which the head sees already."""
    if not 0 <= skip_from < config.num_hidden_layers:
        raise BadInput(
            f"--skip_from {skip_from}: the backbone has {config.num_hidden_layers} layers, so 0 to "
            f"{config.num_hidden_layers - 1} can be chosen (6 for 12 layers, 3 for 6)"
        )


def run_layers(layers: nn.ModuleList, states: Tensor, attention_mask: Tensor, config) -> Tensor:
    """Transformer layers in order on (B, L, H), with padding masked as the backbone itself masks it."""
    mask = create_bidirectional_mask(config=config, inputs_embeds=states, attention_mask=attention_mask)
    for layer in layers:
        states = layer(states, mask)
    return states


class LowerLayers(nn.Module):
    """A copy of the embeddings and the first `skip_from` layers: ids (B, L) -> states (B, L, H), or packed."""

    def __init__(self, backbone: PreTrainedModel, skip_from: int) -> None:
        super().__init__()
        check_depth(backbone.config, skip_from)
        self.config = backbone.config
        self.embeddings = copy.deepcopy(backbone.embeddings)
        self.layers = copy.deepcopy(backbone.encoder.layer[:skip_from])

    def forward(self, input_ids: Tensor, attention_mask: Tensor | Packing) -> Tensor:
        if isinstance(attention_mask, Packing):
            return attention_mask.run(self.layers, attention_mask.embed(self.embeddings, input_ids))
        return run_layers(self.layers, self.embeddings(input_ids=input_ids), attention_mask, self.config)

    def hold(self, dtype: torch.dtype) -> None:
        """Keep the matrices of frozen layers in the type to which autocast would cast them in every step.

        Under autocast to that type the states stay the same to the bit: norms, embeddings and sums are not touched.
        """
        for part in self.layers.modules():
            if isinstance(part, nn.Linear):
                part.to(dtype)


class VocabularyHead(nn.Module):
    """A copy of a model's way from hidden states to logits, with a matrix of its own: (M, H) -> (M, vocabulary)."""

    def __init__(self, lm: PreTrainedModel) -> None:
        super().__init__()
        family = family_of(lm.config)
        head = lm.get_submodule(family.output)
        self.transform = copy.deepcopy(family.transform(head))
        self.decoder = nn.Linear(head.decoder.in_features, head.decoder.out_features)
        self.decoder.load_state_dict(head.decoder.state_dict())

    def forward(self, states: Tensor) -> Tensor:
        return self.decoder(self.transform(states))


def head_input(cls: Tensor, lower: Tensor) -> Tensor:
    """[h ; M > 0]: the sentence's [CLS] (B, H) before the lower states of the other positions, (B, L, H)."""
    return torch.cat([cls.unsqueeze(1), lower[:, 1:]], dim=1)


def masked_token_loss(output: Callable[[Tensor], Tensor], states: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of the cross entropies at the labelled positions, and their number; logits exist only there.

    The rows are filled up to a multiple of `ROWS`: oneDNN keeps a primitive for every shape it has seen, and with a
    new number of masked tokens in every step bfloat16 training on a CPU would grow by tens of megabytes a step.
    """
    chosen = labels != IGNORED
    targets = labels[chosen]
    filled = -len(targets) % ROWS
    logits = output(F.pad(states[chosen], (0, 0, 0, filled)))  # (M rounded up, vocabulary)
    targets = F.pad(targets, (0, filled), value=IGNORED)
    return F.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="sum"), chosen.sum()


def new_head(backbone: PreTrainedModel, count: int) -> nn.ModuleList:
    """`count` transformer layers of the backbone's own kind, drawn as it draws its layers; BadInput below one."""
    if not 1 <= count <= MOST_LAYERS:
        raise BadInput(f"--head_layers {count}: from 1 to {MOST_LAYERS}")
    kind = type(backbone.encoder.layer[0])
    layers = nn.ModuleList(kind(backbone.config) for _ in range(count))
    layers.apply(backbone._init_weights)
    return layers


def top_layers(backbone: PreTrainedModel, count: int) -> nn.ModuleList:
    """Copies of the backbone's last `count` layers, under its own configuration."""
    if not 0 < count <= len(backbone.encoder.layer):
        raise BadInput(f"--head_layers {count}: the backbone has {len(backbone.encoder.layer)} layers")
    return copy.deepcopy(backbone.encoder.layer[-count:], {id(backbone.config): backbone.config})


def read_head(path: str) -> dict[str, Tensor] | None:
    """The auxiliary layers beside a checkpoint (`aux_head.safetensors`, or Condenser's `model.pt`), or None."""
    ours, condenser = Path(path) / HEAD_FILE, Path(path) / CONDENSER_FILE
    if ours.is_file():
        tensors = read_tensors(ours)
    elif condenser.is_file():
        tensors = _read_condenser(condenser)
    else:
        return None
    stray = [name for name in tensors if not name.startswith(PREFIX)]
    if stray:
        raise BadInput(f"'{path}': tensor '{stray[0]}' of the auxiliary head is not named {PREFIX}LAYER.*")
    return {name.removeprefix(PREFIX): value for name, value in tensors.items()}


def _read_condenser(path: Path) -> dict[str, Tensor]:
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the restricted unpickler raises whatever a damaged file makes its steps raise
        raise BadInput(f"{path}: holds more than weights, or is damaged, and is not read") from error
    whole = isinstance(tensors, dict) and all(type(name) is str for name in tensors)
    if not whole or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise BadInput(f"{path}: is no mapping of names to tensors, as Condenser's `{CONDENSER_FILE}` is")
    check_finite(path, tensors)
    tensors.pop("co_target", None)  # coCondenser's labels, a buffer of its loss
    return tensors


def load_head(path: str, backbone: PreTrainedModel, count: int) -> nn.ModuleList | None:
    """The pre-trained auxiliary layers of a checkpoint, every tensor filled and none left over; None without any."""
    tensors = read_head(path)
    if tensors is None:
        return None
    layers = new_head(backbone, count)
    expected = layers.state_dict()
    wrong = sorted(set(tensors) ^ set(expected))
    wrong += [name for name in expected if name in tensors and tensors[name].shape != expected[name].shape]
    if wrong:
        raise BadInput(
            f"the auxiliary head in '{path}' does not fit {count} layers of this backbone: {PREFIX}{wrong[0]} is "
            f"missing, left over or of another shape ({len(wrong)} tensors in all); see --head_layers"
        )
    layers.load_state_dict(tensors)
    return layers
