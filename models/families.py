"""Where backbones keep their parts, one row a family: data, from the modeling files of transformers 5.23.

A family whose layers run by themselves is taken apart: packed, perturbed, cut in two. Any other encoder is called as a
whole, which is all that purely contrastive methods need.

A decoder can encode sentences too. transformers builds its masks from `config.is_causal`: where that is False, they
leave out the padding alone. The key stands in the saved config.json, so whoever loads the folder by transformers
attends as the training did. LLM2Vec (BehnamGhader et al. 2024, arXiv 2404.05961, section 2) does so before it trains
SimCSE on a decoder.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from common.errors import BadInput


@dataclass(frozen=True)
class Family:
    """What is known of a family. Names are those of modules in the backbone.

    Attributes:
        whole: why the layers do not run without their model; empty where they do, each as layer(states, mask).
        layers: the list of the layers.
        embeddings: from ids to the states of the first layer, in order; a model may lack all but the first.
        keys_values: what makes keys and values of states, in the module that calls the attention function.
        like_bert: a layer has BERT's parts, of which TSDAE makes its decoder.
        behind_padding: positions are counted from behind the padding index, not from 0.
        transform: from the last states to the vocabulary matrix, in order, in a `*ForMaskedLM`.
        masks: what the whole model takes as the masks of its kinds of layers, each with what its configuration calls
            their window, or "".
    """

    whole: str = ""
    layers: str = "encoder.layer"
    embeddings: tuple[str, ...] = ("embeddings",)
    keys_values: tuple[str, str] = ("key", "value")
    like_bert: bool = True
    behind_padding: bool = False
    transform: tuple[str | nn.Module, ...] = ()
    masks: tuple[tuple[str, str], ...] = ()


_ROBERTA = Family(behind_padding=True, transform=("lm_head.dense", nn.GELU(), "lm_head.layer_norm"))
_UNKNOWN = Family("its parts are not known here")
FAMILIES = {
    "bert": Family(transform=("cls.predictions.transform",)),
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), _ROBERTA),
    "electra": Family(
        embeddings=("embeddings", "embeddings_project"),  # the second where the widths differ
        transform=tuple(f"generator_predictions.{name}" for name in ("dense", "activation", "LayerNorm")),
    ),
    "distilbert": Family(
        layers="transformer.layer",
        keys_values=("k_lin", "v_lin"),
        like_bert=False,
        transform=("vocab_transform", "activation", "vocab_layer_norm"),
    ),
    "mpnet": replace(_ROBERTA, whole="all its layers add one table of relative positions, which the encoder holds"),
    "modernbert": Family(
        "the model rotates positions for its layers, masks some by a window, and norms what the last one gives",
        transform=("head",),
        masks=(("full_attention", ""), ("sliding_attention", "sliding_window")),
    ),
    "deberta-v2": Family("its layers read relative positions, which the encoder holds"),
}
_COUNT_BEHIND_PADDING = "data2vec-text ibert longformer luke roberta-prelayernorm xlm-roberta-xl xmod".split()
FAMILIES |= dict.fromkeys(_COUNT_BEHIND_PADDING, replace(_UNKNOWN, behind_padding=True))
APART, PACKED, WITH_HEAD = (
    ", ".join(name for name, family in FAMILIES.items() if holds(family))
    for holds in (lambda f: not f.whole, lambda f: not f.whole or f.masks, lambda f: f.transform)
)


def family_of(config) -> Family:
    """What is known of a configuration's family."""
    return FAMILIES.get(config.model_type, _UNKNOWN)


def check_apart(config, what: str) -> None:
    """BadInput where something needs the layers of a family that is only called as a whole."""
    if family_of(config).whole:
        raise BadInput(
            f"{what} needs a backbone that can be taken apart ({APART}), which a '{config.model_type}' cannot: "
            f"{family_of(config).whole}; purely contrastive methods work with any encoder"
        )


def packs(config) -> bool:
    """Whether a model runs on real tokens only, see `models.packed`; a decoder, which looks one way, does not."""
    family = family_of(config)
    return bool(not family.whole or family.masks) and not getattr(config, "is_decoder", False)


def layers_of(backbone: PreTrainedModel) -> nn.ModuleList:
    """The layers of a backbone that can be taken apart."""
    return backbone.get_submodule(family_of(backbone.config).layers)


def embeddings_of(model: nn.Module) -> dict[str, nn.Module]:
    """What makes states of ids, by name: in a backbone, or in a copy of its parts under their names."""
    return {name: getattr(model, name) for name in family_of(model.config).embeddings if hasattr(model, name)}


def embed(model: nn.Module, **ids: Tensor) -> Tensor:
    """Ids, and positions where they are not the usual ones -> the states of the first layer."""
    first, *others = embeddings_of(model).values()
    states = first(**ids)
    for part in others:
        states = part(states)
    return states


def output_of(lm: PreTrainedModel) -> tuple[nn.Module, nn.Linear]:
    """A masked language model's way from hidden states to logits: the transform and the vocabulary matrix."""
    parts = [lm.get_submodule(part) if isinstance(part, str) else part for part in family_of(lm.config).transform]
    return parts[0] if len(parts) == 1 else nn.Sequential(*parts), lm.get_output_embeddings()


def attends_backwards(model: PreTrainedModel) -> bool:
    """Whether the tokens of a model see no later ones, as its configuration and its attention modules say."""
    causal = any(getattr(part, "is_causal", False) is True for part in model.modules())
    return causal and getattr(model.config, "is_causal", None) is not False


def attend_both_ways(model: PreTrainedModel) -> None:
    """Let each token of a decoder see all others, from now on and wherever it is saved and loaded.

    Raises:
        BadInput: it does so already, or its code does not read the key.
    """
    if _sees_ahead(model):
        raise BadInput("--bidirectional: this model attends both ways as it is; leave it out")
    model.config.is_causal = False
    if not _sees_ahead(model):
        raise BadInput(f"--bidirectional: transformers' code of a '{model.config.model_type}' knows no such attention")


@torch.no_grad()
def _sees_ahead(model: PreTrainedModel) -> bool:
    """Whether a token's state depends on the next token."""
    ids, was = torch.tensor([[0, 0], [0, 1]]), model.training
    first, other = model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[:, 0]
    model.train(was)
    return not torch.allclose(first, other, atol=1e-6)
