"""A training step, forward and backward: ours against the published one and sentence-transformers'.

Time is measured by turns in one process, peak memory by the kernel in a process of each side.
"""

from __future__ import annotations

import argparse
import copy
import logging
from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode

from bench import pair
from bench.timing import alternate, apart
from common.flags import positive
from common.memory import peak_mib
from models.encoder import SentenceEncoder
from models.objectives.simcse import Contrastive
from models.training import EncoderForTraining

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    size = "size; the weights are random"
    parser.add_argument("--model", choices=pair.MODELS, default="bert-base", help=size)
    precision = "bf16: autocast on both sides"
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help=precision)
    batch = "sentences per step, with two views each"
    parser.add_argument("--batch", type=positive, default=64, help=batch)
    parser.add_argument("--length", type=positive, default=32, help="maximum tokens per sentence")


def rows(args: argparse.Namespace) -> list[dict]:
    """InfoCSE's step against the plain one, and SimCSE's against sentence-transformers."""
    plain, ours = apart(infocse_peak, True, args), apart(infocse_peak, False, args)
    memory = {
        "memory_ratio": round(plain / ours, 2),
        "plain_mib": round(plain),
        "ours_mib": round(ours),
    }
    return [apart(infocse, args) | memory, apart(simcse, args)]


def infocse_peak(is_plain: bool, args: argparse.Namespace) -> float:
    """Peak resident memory, in MiB, of building the model and taking two steps of InfoCSE."""
    lm = pair.masked_lm(args.model)
    model = pair.PlainInfoCSE(lm) if is_plain else pair.ours(lm, args.precision)
    for number in (0, 1):
        infocse_step(model, number, args)
    return peak_mib()


def infocse_step(model: torch.nn.Module, number: int, args: argparse.Namespace) -> None:
    """A step on a batch of its own."""
    inputs = pair.batch(pair.config_of(args.model), args.batch, args.length, number + 1)
    pair.take_step(model, lambda: model(**inputs), args.precision)


def infocse(args: argparse.Namespace) -> dict:
    """InfoCSE's step; both sides get the same batches, a new one in each repetition."""
    theirs = pair.PlainInfoCSE(pair.masked_lm(args.model))
    mine = pair.ours(pair.masked_lm(args.model), args.precision)

    def plain(number: int) -> None:
        infocse_step(theirs, number, args)

    def ours(number: int) -> None:
        infocse_step(mine, number, args)

    tflop = {"plain_tflop": tflop_of(plain), "ours_tflop": tflop_of(ours)}
    logger.info("TFLOP a step: %s", tflop)
    timed = alternate(plain, ours, args.runs, warm_up=True)
    return timed.row("infocse step", args.precision, args.model, args.runs, **tflop)


def tflop_of(step: Callable[[int], None]) -> float:
    with FlopCounterMode(display=False) as counter:
        step(0)
    return round(counter.get_total_flops() / 1e12, 2)


def simcse(args: argparse.Namespace) -> dict:
    """SimCSE's step with tokenising against MultipleNegativesRankingLoss on each sentence twice.

    Both sides have the same weights, sentences, length, temperature and pooling ([CLS], no
    projection), with dropout.
    """
    peer, peer_loss = pair.peer(pair.config_of(args.model), args.length)
    backbone, tokenizer = copy.deepcopy(peer[0].model), copy.deepcopy(peer.tokenizer)
    encoder = SentenceEncoder(backbone, "cls_before_pooler", None, args.length, packed=True)
    model = EncoderForTraining(encoder, None, [Contrastive(pair.TEMPERATURE)]).train()
    cut = {"padding": True, "truncation": True, "max_length": args.length, "return_tensors": "pt"}

    def plain(number: int) -> None:
        text = pair.sentences(args.batch, number + 1)
        views = [peer.preprocess(text), peer.preprocess(text)]
        pair.take_step(peer, lambda: peer_loss(views, None), args.precision)

    def ours(number: int) -> None:
        tokens = tokenizer(pair.sentences(args.batch, number + 1), **cut)
        views = {name: torch.stack([tokens[name]] * 2) for name in ("input_ids", "attention_mask")}
        pair.take_step(model, lambda: model(**views), args.precision)

    timed = alternate(plain, ours, args.runs, warm_up=True)
    name = "simcse step against sentence-transformers"
    return timed.row(name, args.precision, args.model, args.runs)
