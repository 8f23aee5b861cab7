"""The seven STS test sets with a real encoder: ours against a SentEval-style loop.

The plain side works like SentEval: fixed batches sorted by length, padding, no deduplication,
cosines one by one, and all three splits of STS-B and SICK-R although one is used. Like SimCSE's
batcher it keeps all hidden states. The scores of both sides are compared.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr

import infocse
from bench.timing import alternate
from common.errors import ProjectError
from eval.encode import Encode, Encoder
from eval.sts import STS_TEST, Pairs, merged, read_sick, read_stsb
from models.pooling import POOLINGS

BATCH = 128  # SentEval's
ALLOWED = {"fp32": 0.01, "bf16": 0.05}  # Spearman points: the sides round in another order


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="any encoder that `python -m eval` accepts")
    parser.add_argument("--pooling", help="for plain encoders")
    parser.add_argument("--data_dir", default="corpora", help="folder with senteval/downstream")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast on both sides")


def rows(args: argparse.Namespace) -> list[dict]:
    """One row; ProjectError if scores differ by more than rounding."""
    encoder, tokenizer = infocse.load(args.model, args.pooling)
    data_dir, precision = Path(args.data_dir), "bf16" if args.bf16 else "fp32"
    encode = Encode(encoder, tokenizer, bf16=args.bf16)
    theirs = partial(plain_encode, encoder.eval(), tokenizer, args.bf16)

    scores: dict[str, dict[str, float]] = {"plain": {}, "ours": {}}

    def plain(_: int) -> None:
        found = scores["plain"]
        for task in STS_TEST[:5]:
            found[task.name] = spearman(theirs, merged(task.load(data_dir)))
        for split in ("train", "dev", "test"):
            found["STS-B"] = spearman(theirs, merged(read_stsb(split, data_dir)))
        for file in ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt"):
            found["SICK-R"] = spearman(theirs, merged(read_sick(file, data_dir)))

    def ours(_: int) -> None:
        for task in STS_TEST:
            scores["ours"][task.name] = task.score(encode, data_dir).rows[0]["value"]

    times = alternate(plain, ours, args.runs)
    apart = max(abs(scores["plain"][name] - value) for name, value in scores["ours"].items())
    if apart > ALLOWED[precision]:
        raise ProjectError(f"scores differ by {apart:.4f}: {scores}")
    row = {"name": "seven test sets", "precision": precision, "model": Path(args.model).name}
    return [row | times | {"runs": args.runs, "apart": round(apart, 5)}]


@torch.no_grad()
def plain_encode(encoder, tokenizer, bf16: bool, sentences: list[str]) -> np.ndarray:
    """The vectors, (N, D), of sentences in the given order, 128 at a time."""
    parts = []
    cut = {"padding": True, "truncation": True, "max_length": 512, "return_tensors": "pt"}
    for start in range(0, len(sentences), BATCH):
        batch = tokenizer(sentences[start : start + BATCH], **cut)
        ids, mask = batch["input_ids"], batch["attention_mask"]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            states = encoder.backbone(ids, mask, output_hidden_states=True).hidden_states
            pooled = POOLINGS[encoder.pooling].pool(states, mask, encoder.place)
        parts.append(pooled.float().numpy())
    return np.concatenate(parts)


def spearman(encode: Encoder, pairs: Pairs) -> float:
    """Spearman x 100 of pairs in SentEval's order, sorted by length."""

    def lengths(row: int) -> tuple[int, int]:
        return len(pairs.left[row].split()), len(pairs.right[row].split())

    order = sorted(range(len(pairs.gold)), key=lengths)
    left = encode([pairs.left[row] for row in order])
    right = encode([pairs.right[row] for row in order])
    cosines = []
    for a, b in zip(left, right, strict=True):
        cosines.append(np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)))
    return 100 * float(spearmanr(cosines, [pairs.gold[row] for row in order]).statistic)
