"""One training step, forward and backward: ours against the published computation and
sentence-transformers.

Time is measured by turns in one process, peak memory by the kernel in a process of each side.
"""

import copy
import logging

import torch
from torch.utils.flop_counter import FlopCounterMode

from bench import pair
from bench.pair import add_arguments, batch, config_of
from bench.timing import alternate, apart, bench_row
from common.memory import peak_mib
from models.encoder import SentenceEncoder
from models.objectives.simcse import Contrastive
from models.training import EncoderForTraining

__all__ = ["add_arguments", "rows"]
logger = logging.getLogger(__name__)


def rows(args) -> list[dict]:
    """InfoCSE's step against the plain one, and SimCSE's against sentence-transformers."""
    plain, ours = (apart(infocse_peak, is_plain, args) for is_plain in (True, False))
    memory = {
        "memory_ratio": round(plain / ours, 2),
        "plain_mib": round(plain),
        "ours_mib": round(ours),
    }
    return [apart(infocse, args) | memory, apart(simcse, args)]


def infocse_peak(is_plain: bool, args) -> float:
    """Peak resident memory, in MiB, of building the model and taking two steps of InfoCSE."""
    lm = pair.masked_lm(args.model)
    model = pair.PlainInfoCSE(lm) if is_plain else pair.ours(lm, args.precision)
    for seed in (1, 2):
        inputs = batch(lm.config, args.batch, args.length, seed)
        pair.take_step(model, lambda inputs=inputs: model(**inputs), args.precision)
    return peak_mib()


def infocse(args) -> dict:
    """InfoCSE's step; both sides get the same batches, a new one in each repetition."""
    lm = pair.masked_lm(args.model)
    plain, ours = pair.PlainInfoCSE(pair.masked_lm(args.model)), pair.ours(lm, args.precision)

    def step(model):
        def run(number: int) -> None:
            inputs = batch(lm.config, args.batch, args.length, number + 1)
            pair.take_step(model, lambda: model(**inputs), args.precision)

        return run

    sides = {"plain": step(plain), "ours": step(ours)}
    tflop = {name: _tflop(side) for name, side in sides.items()}
    logger.info("TFLOP a step: plain %.2f, ours %.2f", tflop["plain"], tflop["ours"])
    timed = alternate(sides["plain"], sides["ours"], args.runs, warm_up=True)
    more = {f"{name}_tflop": round(number, 2) for name, number in tflop.items()}
    return bench_row("infocse step", args.precision, args.model, timed, args.runs, **more)


def _tflop(side) -> float:
    with FlopCounterMode(display=False) as counter:
        side(0)
    return counter.get_total_flops() / 1e12


def simcse(args) -> dict:
    """SimCSE's step with tokenising: MultipleNegativesRankingLoss on each sentence twice against
    our objective.

    Both sides have the same weights, sentences, length, temperature and pooling ([CLS], no
    projection), with dropout.
    """
    peer, peer_loss = pair.peer(config_of(args.model), args.length, "cpu")
    backbone, tokenizer = copy.deepcopy(peer[0].model), copy.deepcopy(peer.tokenizer)
    encoder = SentenceEncoder(backbone, "cls_before_pooler", None, args.length, packed=True)
    model = EncoderForTraining(encoder, None, [Contrastive(pair.TEMPERATURE)]).train()

    def plain(number: int) -> None:
        text = pair.sentences(args.batch, number + 1)
        pair.take_step(
            peer,
            lambda: peer_loss([peer.preprocess(text), peer.preprocess(text)], None),
            args.precision,
        )

    def ours(number: int) -> None:
        text = pair.sentences(args.batch, number + 1)
        tokens = tokenizer(
            text, padding=True, truncation=True, max_length=args.length, return_tensors="pt"
        )
        views = {name: torch.stack([tokens[name]] * 2) for name in ("input_ids", "attention_mask")}
        pair.take_step(model, lambda: model(**views), args.precision)

    timed = alternate(plain, ours, args.runs, warm_up=True)
    return bench_row(
        "simcse step against sentence-transformers", args.precision, args.model, timed, args.runs
    )
