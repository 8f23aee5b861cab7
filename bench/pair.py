"""The plain step and ours with the same weights."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from contextlib import nullcontext

import torch
from transformers import BertForMaskedLM

from bench.inputs import MODELS, config_of, skip_from
from bench.plain import PlainInfoCSE
from common.flags import positive
from models import auxiliary
from models.encoder import SentenceEncoder
from models.heads import projection_named
from models.objectives.infocse import AuxiliaryMLM
from models.objectives.simcse import Contrastive
from models.packed import Packed
from models.runner import Padded
from models.training import EncoderForTraining

WEIGHT, TEMPERATURE, HEAD_LAYERS = 1e-5, 0.05, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of what is measured on a training step."""
    parser.add_argument("--model", choices=MODELS, default="bert-base", help="sizes; the weights are random")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16: autocast on both sides")
    parser.add_argument("--batch", type=positive, default=64, help="sentences, of which each side computes two views")
    parser.add_argument("--length", type=positive, default=32, help="tokens at which sentences are cut")


def masked_lm(model: str, dropout: float = 0.1) -> BertForMaskedLM:
    """A masked language model of random weights, the same in every call."""
    torch.manual_seed(0)
    return BertForMaskedLM(config_of(model, dropout))


def plain(lm: BertForMaskedLM, weight: float = WEIGHT) -> PlainInfoCSE:
    """The plain step of InfoCSE; takes `lm` for its frozen copy, cut above the layer that is read."""
    encoder, head, output = copy.deepcopy(lm.bert), _head(lm), copy.deepcopy(lm.cls)
    lm.bert.encoder.layer = lm.bert.encoder.layer[: skip_from(lm.config)]
    return PlainInfoCSE(encoder, _projection(lm), lm, head, output, weight, TEMPERATURE).train()


def ours(lm: BertForMaskedLM, precision: str = "fp32", weight: float = WEIGHT, packed: bool = True):
    """The step that `run_unsup.py` takes; takes `lm` for its encoder."""
    runner = Packed if packed else Padded
    runner.prepare(lm)
    lower = auxiliary.LowerLayers(lm.bert, skip_from(lm.config))
    aux = AuxiliaryMLM(lower, _head(lm), auxiliary.VocabularyHead(lm), weight, True, True, (0, 1), runner)
    if precision == "bf16":
        aux.cast_frozen(torch.bfloat16)
    encoder = SentenceEncoder(lm.bert, "cls_before_pooler", None, 512, packed)
    return EncoderForTraining(encoder, _projection(lm), [Contrastive(TEMPERATURE), aux]).train()


def _head(lm: BertForMaskedLM) -> torch.nn.ModuleList:
    torch.manual_seed(1)
    return auxiliary.new_head(lm.bert, HEAD_LAYERS)


def _projection(lm: BertForMaskedLM) -> torch.nn.Module:
    torch.manual_seed(2)
    return projection_named("batch_norm", lm.config.hidden_size, lm.config.initializer_range)


def precision_of(name: str):
    """The context in which one step of a precision runs."""
    return torch.autocast("cpu", dtype=torch.bfloat16) if name == "bf16" else nullcontext()


def take_step(model: torch.nn.Module, loss: Callable[[], torch.Tensor], precision: str) -> None:
    """Forward and backward; the gradients are dropped at once, so that two models fit beside each other."""
    with precision_of(precision):
        value = loss()
    value.backward()
    model.zero_grad(set_to_none=True)
