"""What a training step costs outside forward, backward and optimizer: our loop against the published scripts' one.

Both train a model of one parameter on the same generated sentences, two views and their masked twins a step, for two
lengths; the slope of the CPU time is the cost of a step without what a run costs once. Goal: 1 ms for 64 sentences.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn
from transformers import BertTokenizer, IntervalStrategy, PrinterCallback, Trainer

from bench import plain_loop
from bench.inputs import CLS, LENGTHS, MASK, SEP
from bench.timing import Timed, bench_row
from common.flags import positive
from common.views import Masking, View
from data.collator import Collator
from data.tokenised import TokenisedText, write_tokenised
from data.tokenizer import SpecialTokens
from models.training import TrainingOutput
from training.run_arguments import RunArguments
from training.trainer import EmbeddingTrainer

MASK_RATE, VOCABULARY, FIRST_WORD = 0.4, 30522, 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this subject."""
    parser.add_argument("--batch", type=positive, default=64, help="sentences a step")
    parser.add_argument("--length", type=positive, default=32, help="tokens at which sentences are cut")
    parser.add_argument("--rows", type=positive, default=20_000, help="generated sentences")
    parser.add_argument("--steps", type=positive, nargs=2, default=[100, 500], help="lengths of the two runs")


def rows(args: argparse.Namespace) -> list[dict]:
    """One row: milliseconds of CPU time a step, the median over `runs` slopes."""
    tokenizer, sentences = generated(args.rows)
    with TemporaryDirectory() as folder:
        write_tokenised(Path(folder), (([ids], None) for ids in sentences), {})
        ours, plain = _ours(args, TokenisedText(folder), tokenizer, folder), _plain(args, sentences, tokenizer, folder)
        slopes = [(_slope(plain, args.steps), _slope(ours, args.steps)) for _ in range(args.runs)]
    plain_ms, ours_ms = (statistics.median(side) for side in zip(*slopes, strict=True))
    row = bench_row("loop", "fp32", "one parameter", Timed(plain_ms, ours_ms, None, None), args.runs)
    return [row | {"plain_ms": round(plain_ms, 2), "ours_ms": round(ours_ms, 2)}]


def generated(count: int) -> tuple[BertTokenizer, list[list[int]]]:
    """A tokenizer of BERT's size and frame, and sentences of real lengths without their special tokens."""
    special = {0: "[PAD]", 100: "[UNK]", CLS: "[CLS]", SEP: "[SEP]", MASK: "[MASK]"}
    tokenizer = BertTokenizer({special.get(i, f"w{i}"): i for i in range(VOCABULARY)})
    random = np.random.default_rng(0)
    lengths = random.choice(len(LENGTHS), count, p=np.array(LENGTHS) / sum(LENGTHS)) - 2
    return tokenizer, [random.integers(FIRST_WORD, VOCABULARY, n).tolist() for n in lengths]


class OneParameter(nn.Module):
    """Costs next to nothing; the batch is taken and not looked at."""

    accepts_loss_kwargs = False

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, **batch: Tensor) -> TrainingOutput:
        loss = self.weight.square()
        return TrainingOutput(loss=loss, terms={"contrastive": loss.detach(), "aux_mlm": loss.detach()})

    def probe(self, **batch: Tensor) -> dict[str, float]:
        return {"uniformity": -1.0}

    def after_step(self) -> None:
        """Nothing follows a step."""


def _arguments(args: argparse.Namespace, steps: int, folder: str) -> RunArguments:
    made = RunArguments(
        output_dir=folder, per_device_train_batch_size=args.batch, max_steps=steps, save_strategy="no", report_to=[],
        disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    made.eval_strategy = IntervalStrategy.NO  # no flag of a run, whose loop is what is timed
    return made


def _ours(args: argparse.Namespace, corpus: TokenisedText, tokenizer, folder: str) -> Callable[[int], object]:
    masking = [Masking(MASK_RATE, views=(0, 1))]
    collator = Collator(corpus, tokenizer, [View(), View()], args.length, 42, masking)

    def run(steps: int) -> None:
        _train(EmbeddingTrainer(OneParameter(), _arguments(args, steps, folder), collator, len(corpus)))

    return run


def _plain(args: argparse.Namespace, sentences: list[list[int]], tokenizer, folder: str) -> Callable[[int], object]:
    special = SpecialTokens.of(tokenizer)
    data = plain_loop.tokenised(sentences, (special.prefix, special.suffix), args.length)
    collator = plain_loop.PairCollator(tokenizer, MASK_RATE)

    def run(steps: int) -> None:
        _train(Trainer(OneParameter(), _arguments(args, steps, folder), collator, data))

    return run


def _train(trainer: Trainer) -> None:
    trainer.remove_callback(PrinterCallback)  # the logged lines of a model that is none
    trainer.train()


def _slope(run: Callable[[int], object], lengths: list[int]) -> float:
    """Milliseconds of CPU time a step beyond the shorter run."""
    spent = []
    for steps in lengths:
        start = time.process_time()
        run(steps)
        spent.append(1000 * (time.process_time() - start))
    return (spent[1] - spent[0]) / (lengths[1] - lengths[0])
