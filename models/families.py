"""Where the known backbones keep their parts. Only BERT and RoBERTa are taken apart; all else is called as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedModel

from common.errors import BadInput


@dataclass(frozen=True)
class Family:
    """Where a `*ForMaskedLM` keeps its parts. The backbones themselves all use BERT's names."""

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
    """The family of a configuration; BadInput for an unknown one."""
    if config.model_type not in FAMILIES:
        raise BadInput(
            f"the auxiliary network needs the pieces of a backbone and knows {', '.join(FAMILIES)}, "
            f"not '{config.model_type}'; purely contrastive methods work with any encoder"
        )
    return FAMILIES[config.model_type]


def backbone_of(lm: PreTrainedModel) -> PreTrainedModel:
    """The encoder inside a masked language model."""
    return getattr(lm, family_of(lm.config).base)


def output_of(lm: PreTrainedModel) -> tuple[nn.Module, nn.Linear]:
    """A masked language model's way from hidden states to logits: the transform and the vocabulary matrix."""
    family = family_of(lm.config)
    output = lm.get_submodule(family.output)
    return family.transform(output), output.decoder
