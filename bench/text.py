"""Training text larger than memory: time and peak memory of tokenising, the first batches, and a late resume."""

import argparse
import hashlib
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from accelerate import skip_first_batches
from torch.utils.data import DataLoader

from bench.loop import VOCABULARY, generated
from bench.pair import FIRST_WORD
from common.errors import ProjectError
from common.files import find_files, writing_folder
from common.flags import positive
from common.memory import peak_mib
from data.collator import Collator
from data.draws import KeyedSampler, Keys
from data.source import Source
from data.tokenised import load_tokenised
from data.views import Masking, View

BATCH, LENGTH, SEED = 64, 32, 42
SHARD = 1_000_000  # lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sentences", type=positive, default=1_000_000, help="generated lines of 8 to 12 words")
    parser.add_argument("--batches", type=positive, default=300, help="batches to read at the start and after a resume")
    parser.add_argument("--folder", help="folder for text and tokens, kept (default: a temporary folder)")


def rows(args: argparse.Namespace) -> list[dict]:
    """One row; ProjectError if the batches after a resume differ from those of an uninterrupted run."""
    with TemporaryDirectory() as temporary:
        folder = Path(args.folder or temporary)
        text = folder / f"text-{args.sentences}"
        if not text.is_dir():
            # In a process of its own, whose memory does not count.
            with writing_folder(text) as partial, ProcessPoolExecutor(1, get_context("spawn")) as other:
                other.submit(generate, partial, args.sentences).result()
        return [measure(text, folder / f"cache-{args.sentences}", args.sentences, args.batches)]


def generate(folder: Path, count: int) -> None:
    """Write shards of at most `SHARD` lines, 8 to 12 random words each."""
    random, words = np.random.default_rng(0), np.array([f"w{i}" for i in range(VOCABULARY)], dtype=object)
    for number, start in enumerate(range(0, count, SHARD)):
        lengths = random.integers(8, 13, min(SHARD, count - start))
        drawn = words[random.integers(FIRST_WORD, VOCABULARY, lengths.sum())].tolist()
        ends = np.cumsum(lengths).tolist()
        with (folder / f"part-{number:05}.txt").open("w", encoding="utf-8") as file:
            file.writelines(" ".join(drawn[a:b]) + "\n" for a, b in zip([0, *ends], ends, strict=False))


def measure(text: Path, cache: Path, sentences: int, count: int) -> dict:
    """Seconds for tokenising, for the first `count` batches, for a resume among them, and for the last of the epoch."""
    tokenizer, _ = generated(1)
    clock = [time.perf_counter()]
    corpus = load_tokenised(Source(tuple(find_files([str(text)], ""))), tokenizer, cache)
    after_tokenising = round(peak_mib())
    clock.append(time.perf_counter())
    collator = Collator(corpus, tokenizer, [View(), View()], LENGTH, SEED, [Masking(0.15, whole_words=True)])
    sampler = KeyedSampler(SEED, len(corpus), BATCH)
    loader = DataLoader(Keys(len(corpus)), BATCH, sampler=sampler, collate_fn=collator, drop_last=True)
    whole = list(digests(islice(loader, count)))
    clock.append(time.perf_counter())
    half = count // 2
    if list(digests(islice(skip_first_batches(loader, half), count - half))) != whole[half:]:
        raise ProjectError(f"the batches from number {half} differ from those of an uninterrupted run")
    clock.append(time.perf_counter())
    last = list(digests(skip_first_batches(loader, max(0, len(loader) - count))))
    clock.append(time.perf_counter())
    seconds = np.diff(clock).round(1).tolist()
    return {"name": "text", "sentences": sentences, "tokens": corpus.tokens, "tokenise_s": seconds[0],
            "batches": len(whole), "batches_s": seconds[1], "resume_s": seconds[2], "last_batches": len(last),
            "resume_at_the_end_s": seconds[3], "rss_tokenised_mib": after_tokenising,
            "peak_rss_mib": round(peak_mib())}  # fmt: skip


def digests(batches: Iterator[dict]) -> Iterator[str]:
    for batch in batches:
        yield hashlib.sha256(b"".join(batch[name].numpy().tobytes() for name in sorted(batch))).hexdigest()
