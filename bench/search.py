"""An index of made-up documents: seconds to build, save and load it, time and memory of a query.

Documents have 40 to 159 words with Zipf's frequencies, vectors and queries are random: nothing is
encoded.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from common.flags import positive
from common.memory import peak_mib
from search.index import Document, Index

VOCABULARY, WIDTH, QUERIES = 200_000, 384, 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    counts = [200_000, 1_000_000]
    parser.add_argument("--documents", type=positive, nargs="+", default=counts, help="sizes")


def rows(args: argparse.Namespace) -> Iterator[dict]:
    """A row for each size."""
    for count in args.documents:
        generator = np.random.default_rng(0)
        documents = []
        for number, text in enumerate(made_up(generator, count, 40, 160)):
            documents.append(Document(str(number), "", text))
        start = time.perf_counter()
        index = Index.build(partial(encode, generator), documents)
        built = time.perf_counter() - start
        queries = made_up(generator, QUERIES, 8, 9)
        vectors = encode(generator, queries)
        row = {"documents": count, "vectors": "float16", "build_s": round(built, 1)}
        yield row | measured(index, queries, vectors)


def measured(index: Index, queries: Sequence[str], vectors: np.ndarray) -> dict:
    """An index that is saved, loaded and searched; a query's time is their median."""
    with TemporaryDirectory() as folder:
        start = time.perf_counter()
        index.save(Path(folder) / "index", {"model": "none", "identity": "none"})
        saved = time.perf_counter()
        loaded = Index.load(Path(folder) / "index")
        opened = time.perf_counter()
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
        times = []
        for query, vector in zip(queries, vectors, strict=True):
            begin = time.perf_counter()
            loaded.search(vector[None], [query], 10)
            times.append(1000 * (time.perf_counter() - begin))
    return {
        "save_s": round(saved - start, 1),
        "load_s": round(opened - saved, 2),
        "first_query_ms": round(times[0], 1),
        "query_ms": round(float(np.median(times)), 1),
        "disk_mib": round(size / 2**20),
        "peak_mib": round(peak_mib()),
    }


def encode(generator: np.random.Generator, texts: Sequence[str]) -> np.ndarray:
    """Random vectors, (N, D)."""
    return generator.normal(size=(len(texts), WIDTH)).astype(np.float32)


def made_up(generator: np.random.Generator, count: int, least: int, most: int) -> list[str]:
    """Texts with `least` to `most` - 1 words."""
    share = 1 / np.arange(1, VOCABULARY + 1) ** 1.05
    bounds = np.cumsum(share / share.sum())
    texts = []
    for length in generator.integers(least, most, size=count).tolist():
        words = np.searchsorted(bounds, generator.random(length)).tolist()
        texts.append(" ".join(f"w{number:x}" for number in words))
    return texts
