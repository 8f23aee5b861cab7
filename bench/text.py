"""A run of one step on millions of generated lines: its time and memory.

Lines have eleven words of a small vocabulary, the model is tiny. The first start reads and
tokenises the text; the later one finds it in the cache. Linux only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import run_unsup
from bench.cases import TINY, WORDS, Materials
from bench.timing import apart, own_memory
from common.files import ROOT
from common.flags import positive
from training.config_files import words_of

LENGTH, SHARD = 11, 1_000_000  # words of a line, lines of a file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lines", type=positive, nargs="+", default=[2_000_000], help="sizes")


def rows(args: argparse.Namespace) -> Iterator[dict]:
    """Two rows for each size."""
    for count in args.lines:
        with TemporaryDirectory() as folder:
            apart(generate, Path(folder), count)
            for start in ("first", "later"):
                yield {"lines": count, "start": start, **apart(started, Path(folder), start)}


def generate(folder: Path, count: int) -> None:
    """A model, and lines in files of a million."""
    Materials(folder, TINY, 64, 32)
    (folder / "shards").mkdir()
    generator, words = np.random.default_rng(0), np.array(WORDS)
    for start in range(0, count, SHARD):
        drawn = words[generator.integers(len(words), size=(min(SHARD, count - start), LENGTH))]
        lines = "".join(f"{' '.join(line)}\n" for line in drawn.tolist())
        (folder / "shards" / f"part-{start:09d}.txt").write_text(lines, encoding="utf-8")


def started(folder: Path, start: str) -> dict:
    """CPU time of a run of one step, and the most memory of its own; size of text and cache."""
    flags = {
        "config": ROOT / "configs" / "simcse-bert-base.yaml",
        "model_name_or_path": folder / "bert",
        "train_file": folder / "shards",
        "cache_dir": folder / "cache",
        "output_dir": folder / start,
        "max_steps": 1,
        "dev": "none",
        "test_tasks": "none",
        "use_cpu": True,
    }
    with own_memory() as seen:
        before = time.process_time()
        run_unsup.main(words_of(flags))
        spent = time.process_time() - before
    row = {"cpu_s": round(spent, 1), "own_mib": round(max(seen))}
    for name in ("shards", "cache"):
        sizes = [file.stat().st_size for file in (folder / name).rglob("*") if file.is_file()]
        row[f"{name}_mib"] = round(sum(sizes) / 2**20)
    return row
