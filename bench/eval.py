"""Evaluation of a real encoder on real data: ours against a SentEval-style loop, with a comparison of the scores.

The plain side works like SentEval: fixed batches sorted by length, padding, no deduplication, cosines one by one, and
all three splits of STS-B and SICK-R although one is used. Like SimCSE's batcher it keeps all hidden states.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr

from bench.timing import alternate, bench_row
from common.errors import ProjectError
from eval.encode import Encode
from eval.sts import STS_DEV, STS_TEST, Pairs, merged, read_sick, read_stsb
from models.encoder import load_encoder
from models.pooling import POOLINGS

BATCH = 128  # SentEval's
ALLOWED = {False: 0.01, True: 0.05}  # bf16 -> Spearman points: the two sides round in a different order


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="any encoder that `python -m eval` accepts")
    parser.add_argument("--pooling", help="for plain encoders")
    parser.add_argument("--data_dir", default="corpora", help="folder with senteval/downstream")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast on both sides")
    parser.add_argument("--parts", nargs="+", choices=list(_PARTS), default=list(_PARTS), help="what to time")


def rows(args: argparse.Namespace) -> list[dict]:
    """One row per part; ProjectError if scores differ by more than rounding."""
    encoder, tokenizer = load_encoder(args.model, args.pooling)
    data_dir = Path(args.data_dir)
    plain = PlainEncode(encoder, tokenizer, args.bf16)
    ours = Encode(encoder, tokenizer, bf16=args.bf16)
    results = []
    for part in args.parts:
        slow, fast = _PARTS[part](plain, ours, data_dir)
        timed = alternate(slow, fast, args.runs)
        apart = max(abs(timed.plain[name] - value) for name, value in timed.ours.items())
        if apart > ALLOWED[args.bf16]:
            raise ProjectError(f"{part}: scores differ by {apart:.4f}: {timed.plain} and {timed.ours}")
        precision = "bf16" if args.bf16 else "fp32"
        results.append(bench_row(part, precision, Path(args.model).name, timed, args.runs, apart=round(apart, 5)))
    return results


Sides = tuple[Callable[[int], dict[str, float]], Callable[[int], dict[str, float]]]


def _score(tasks, encode: Encode, data_dir: Path) -> dict[str, float]:
    return {task.name: task.score(encode, data_dir).rows[0]["value"] for task in tasks}


def _stsb_dev(plain, ours, data_dir: Path) -> Sides:
    pairs = merged(STS_DEV[0].load(data_dir))
    return lambda _: {"STS-B": spearman(plain, pairs)}, lambda _: _score(STS_DEV[:1], ours, data_dir)


def _in_training(plain, ours, data_dir: Path) -> Sides:
    """The evaluation every 125 steps: SimCSE's code encodes all of STS-B and SICK-R, ours STS-B dev."""

    def slow(_: int) -> dict[str, float]:
        return {name: every_split(plain, data_dir, name)["dev"] for name in ("STS-B", "SICK-R")}

    return slow, lambda _: _score(STS_DEV[:1], ours, data_dir)


def _seven(plain, ours, data_dir: Path) -> Sides:
    def slow(_: int) -> dict[str, float]:
        years = {task.name: spearman(plain, merged(task.load(data_dir))) for task in STS_TEST[:5]}
        return years | {name: every_split(plain, data_dir, name)["test"] for name in ("STS-B", "SICK-R")}

    return slow, lambda _: _score(STS_TEST, ours, data_dir)


_PARTS = {"STS-B dev": _stsb_dev, "in-training evaluation": _in_training, "seven test sets": _seven}


class PlainEncode:
    """Encodes sentences in the given order, 128 at a time."""

    def __init__(self, encoder, tokenizer, bf16: bool) -> None:
        self.encoder, self.tokenizer, self.bf16 = encoder.eval(), tokenizer, bf16

    @torch.no_grad()
    def __call__(self, sentences: list[str]) -> np.ndarray:
        parts = []
        for start in range(0, len(sentences), BATCH):
            batch = self.tokenizer(
                sentences[start : start + BATCH], padding=True, truncation=True, max_length=512, return_tensors="pt"
            )
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
                ids, mask = batch["input_ids"], batch["attention_mask"]
                states = self.encoder.backbone(input_ids=ids, attention_mask=mask, output_hidden_states=True)
                pooled = POOLINGS[self.encoder.pooling].pool(states.hidden_states, mask, self.encoder.place)
            parts.append(pooled.float().numpy())
        return np.concatenate(parts)


def spearman(encode: PlainEncode, pairs: Pairs) -> float:
    """Spearman x 100 of pairs in SentEval's order, sorted by length."""
    order = sorted(range(len(pairs.gold)), key=lambda i: (len(pairs.left[i].split()), len(pairs.right[i].split())))
    left = encode([pairs.left[i] for i in order])
    right = encode([pairs.right[i] for i in order])
    cosines = [np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b)) for a, b in zip(left, right, strict=True)]
    return 100 * float(spearmanr(cosines, [pairs.gold[i] for i in order]).statistic)


def every_split(encode: PlainEncode, data_dir: Path, name: str) -> dict[str, float]:
    """STS-B or SICK-R as in SentEval: all three splits are encoded, whichever is used."""
    read, files = _SETS[name]
    return {split: spearman(encode, merged(read(file, data_dir))) for split, file in files.items()}


_SETS = {
    "STS-B": (read_stsb, {split: split for split in ("train", "dev", "test")}),
    "SICK-R": (read_sick, {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}),
}
