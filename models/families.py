"""Module names of backbones, one row per family, from the modeling files of transformers 5.23.

A family whose layers run by themselves can be taken apart: packed, perturbed, split in two. Any
other encoder is called as a whole, which is all that purely contrastive methods need.

A decoder can encode sentences too. transformers builds its masks from `config.is_causal`: if it is
False, they mask only the padding (LLM2Vec: BehnamGhader et al. 2024, arXiv 2404.05961, section 2).
The key is saved in config.json.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

from common.errors import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Family:
    """One family. Names are those of modules in the backbone.

    Attributes:
        whole: why the layers do not run without their model; empty if they do, each as
            layer(states, mask).
        layers: the list of layers.
        embeddings: modules from ids to the input of the first layer, in order; a model may lack all
            but the first.
        keys_values: the key and value projections, in the module that calls the attention function.
        like_bert: a layer has BERT's parts, from which TSDAE builds its decoder.
        offset_positions: positions are counted from the padding index + 1, not from 0.
        transform: modules from the last states to the vocabulary matrix, in order, in a
            `*ForMaskedLM`.
    """

    whole: str = ""
    layers: str = "encoder.layer"
    embeddings: tuple[str, ...] = ("embeddings",)
    keys_values: tuple[str, str] = ("key", "value")
    like_bert: bool = True
    offset_positions: bool = False
    transform: tuple[str | nn.Module, ...] = ()


_ROBERTA = Family(
    offset_positions=True, transform=("lm_head.dense", nn.GELU(), "lm_head.layer_norm")
)
_UNKNOWN = Family("its module names are unknown here")
FAMILIES = {
    "bert": Family(transform=("cls.predictions.transform",)),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), _ROBERTA),
    "electra": Family(
        embeddings=("embeddings", "embeddings_project"),  # the second if the widths differ
        transform=tuple(
            f"generator_predictions.{name}" for name in ("dense", "activation", "LayerNorm")
        ),
    ),
    "distilbert": Family(
        layers="transformer.layer",
        keys_values=("k_lin", "v_lin"),
        like_bert=False,
        transform=("vocab_transform", "activation", "vocab_layer_norm"),
    ),
    "mpnet": replace(
        _ROBERTA, whole="all its layers add one table of relative positions, which the encoder owns"
    ),
    "modernbert": Family(
        "the model rotates positions for its layers, masks some by a window, and normalises the "
        "last layer's output",
        transform=("head",),
    ),
    "deberta-v2": Family("its layers read relative positions, which the encoder owns"),
}
APART = ", ".join(name for name, family in FAMILIES.items() if not family.whole)
WITH_HEAD = ", ".join(name for name, family in FAMILIES.items() if family.transform)


def family_of(config) -> Family:
    """Return the family of a configuration."""
    family = FAMILIES.get(config.model_type, _UNKNOWN)
    if getattr(config, "is_decoder", False) and getattr(config, "is_causal", None) is not False:
        return replace(family, whole="it is a decoder, whose tokens attend to earlier ones only")
    return family


def check_apart(config, what: str) -> None:
    """Raise BadInput if `what` needs single layers of a family that is only called as a whole."""
    if family_of(config).whole:
        raise BadInput(
            f"{what} needs a backbone whose layers run by themselves ({APART}), not "
            f"'{config.model_type}': {family_of(config).whole}; purely contrastive methods work "
            "with any encoder"
        )


def without_pooler(model_class: type) -> dict[str, Any]:
    """Return the option that drops the pooler, if the class has one.

    It would have random weights, and be unused under DDP.
    """
    known = "add_pooling_layer" in inspect.signature(model_class).parameters
    return {"add_pooling_layer": False} if known else {}


def packs(config) -> bool:
    """Whether a model can run on real tokens only, see `models.fast`; a causal decoder cannot."""
    return not family_of(config).whole


def layers_of(backbone: nn.Module) -> nn.ModuleList:
    """Return the layers of a backbone that can be taken apart."""
    layers = backbone.get_submodule(family_of(backbone.config).layers)
    assert isinstance(layers, nn.ModuleList)
    return layers


def embeddings_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return the embedding modules by name, of a backbone or a copy of its parts."""
    return {
        name: getattr(model, name)
        for name in family_of(model.config).embeddings
        if hasattr(model, name)
    }


def embed(model: nn.Module, **ids: Tensor) -> Tensor:
    """Ids, and positions if not the default ones -> the input of the first layer."""
    first, *others = embeddings_of(model).values()
    states = first(**ids)
    for part in others:
        states = part(states)
    return states


def output_of(lm: PreTrainedModel) -> tuple[nn.Module, nn.Linear]:
    """Return a masked language model's output head: the transform and the vocabulary matrix."""
    parts = [
        lm.get_submodule(part) if isinstance(part, str) else part
        for part in family_of(lm.config).transform
    ]
    return parts[0] if len(parts) == 1 else nn.Sequential(*parts), lm.get_output_embeddings()


def attends_backwards(model: PreTrainedModel) -> bool:
    """Whether a model is causal, by its configuration and its attention modules.

    If the modules do not say, a language model that is not a masked one is.
    """
    if getattr(model.config, "is_causal", None) is False:
        return False
    said = [getattr(part, "is_causal", None) for part in model.modules()]
    if any(isinstance(causal, bool) for causal in said):
        return True in said
    kind = type(model.config)
    return kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING
