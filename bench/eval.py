"""Evaluation of a real encoder on real data: ours against a SentEval-style loop, scores compared."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from bench import plain_eval
from bench.timing import alternate, bench_row
from common.errors import ProjectError
from eval.encode import Encode
from eval.sts import STS_DEV, STS_TEST, merged
from models.encoder import load_encoder

ALLOWED = {False: 0.01, True: 0.05}  # points of Spearman, by bf16: both sides round, each in its own order


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this subject."""
    parser.add_argument("--model", required=True, help="any encoder `python -m eval` takes")
    parser.add_argument("--pooling", help="for plain encoders")
    parser.add_argument("--data_dir", default="corpora", help="folder with senteval/downstream")
    parser.add_argument("--bf16", action="store_true", help="both sides under bfloat16 autocast")
    parser.add_argument("--parts", nargs="+", choices=list(_PARTS), default=list(_PARTS))


def rows(args: argparse.Namespace) -> list[dict]:
    """A row a part; scores further apart than rounding explains are an error."""
    encoder, tokenizer = load_encoder(args.model, args.pooling)
    data_dir = Path(args.data_dir)
    plain = plain_eval.PlainEncode(encoder, tokenizer, args.bf16)
    ours = Encode(encoder, tokenizer, encoder.max_length, bf16=args.bf16)
    made = []
    for part in args.parts:
        slow, fast = _PARTS[part](plain, ours, data_dir)
        timed = alternate(slow, fast, args.runs)
        apart = max(abs(timed.plain[name] - value) for name, value in timed.ours.items())
        if apart > ALLOWED[args.bf16]:
            raise ProjectError(f"{part}: scores differ by {apart:.4f}: {timed.plain} and {timed.ours}")
        precision = "bf16" if args.bf16 else "fp32"
        made.append(bench_row(part, precision, Path(args.model).name, timed, args.runs, apart=round(apart, 5)))
    return made


Pair = tuple[Callable[[int], dict[str, float]], Callable[[int], dict[str, float]]]


def _score(tasks, encode: Encode, data_dir: Path) -> dict[str, float]:
    return {task.name: task.score(encode, data_dir).rows[0]["value"] for task in tasks}


def _stsb_dev(plain, ours, data_dir: Path) -> Pair:
    pairs = merged(STS_DEV[0].load(data_dir))
    return lambda _: {"STS-B": plain_eval.spearman(plain, pairs)}, lambda _: _score(STS_DEV[:1], ours, data_dir)


def _in_training(plain, ours, data_dir: Path) -> Pair:
    """What runs every 125 steps: SimCSE's code encodes all of STS-B and SICK-R, ours STS-B dev."""

    def slow(_: int) -> dict[str, float]:
        return {name: plain_eval.every_split(plain, data_dir, name)["dev"] for name in ("STS-B", "SICK-R")}

    return slow, lambda _: _score(STS_DEV[:1], ours, data_dir)


def _seven(plain, ours, data_dir: Path) -> Pair:
    def slow(_: int) -> dict[str, float]:
        years = {task.name: plain_eval.spearman(plain, merged(task.load(data_dir))) for task in STS_TEST[:5]}
        return years | {name: plain_eval.every_split(plain, data_dir, name)["test"] for name in ("STS-B", "SICK-R")}

    return slow, lambda _: _score(STS_TEST, ours, data_dir)


_PARTS = {"STS-B dev": _stsb_dev, "in-training evaluation": _in_training, "seven test sets": _seven}
