"""An index of made-up documents: seconds to build, save and load it, milliseconds and memory of a
query.

Documents have 40 to 159 words with Zipf's frequencies, vectors and queries are random: nothing is
encoded.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from common.flags import positive
from common.memory import peak_mib
from search.index import Document, Index

VOCABULARY, WIDTH, QUERIES = 200_000, 384, 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--documents", type=positive, nargs="+", default=[200_000, 1_000_000], help="sizes"
    )
    parser.add_argument(
        "--dtypes", nargs="+", choices=["float16", "int8"], default=["float16", "int8"]
    )


def rows(args: argparse.Namespace) -> list[dict]:
    """A row per size and type of vectors; a query's time is the median of `QUERIES` in an index that was loaded."""
    return [row for count in args.documents for row in measured(count, args.dtypes)]


def measured(count: int, dtypes: list[str]) -> Iterator[dict]:
    generator = np.random.default_rng(0)
    texts = words(generator, count, 40, 160)
    start = time.perf_counter()
    documents = [Document(str(number), "", text) for number, text in enumerate(texts)]
    index = Index.build(
        lambda some: generator.normal(size=(len(some), WIDTH)).astype(np.float32), documents
    )
    built = time.perf_counter() - start
    queries, vectors = words(generator, QUERIES, 8, 9), generator.normal(size=(QUERIES, WIDTH))
    for dtype in dtypes:
        with TemporaryDirectory() as folder:
            start = time.perf_counter()
            index.save(Path(folder) / "index", {"model": "none", "identity": "none"}, dtype)
            saved = time.perf_counter()
            loaded = Index.load(Path(folder) / "index")
            opened = time.perf_counter()
            size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
            times = []
            for query, vector in zip(queries, vectors, strict=True):
                begin = time.perf_counter()
                loaded.search(vector[None], [query], 10)
                times.append(1000 * (time.perf_counter() - begin))
        yield {
            "documents": count,
            "vectors": dtype,
            "build_s": round(built, 1),
            "save_s": round(saved - start, 1),
            "load_s": round(opened - saved, 2),
            "first_query_ms": round(times[0], 1),
            "query_ms": round(float(np.median(times)), 1),
            "disk_mib": round(size / 2**20),
            "peak_mib": round(peak_mib()),
        }


def words(generator: np.random.Generator, count: int, least: int, most: int) -> list[str]:
    """Texts with `least` to `most` - 1 words."""
    share = 1 / np.arange(1, VOCABULARY + 1) ** 1.05
    bounds = np.cumsum(share / share.sum())
    lengths = generator.integers(least, most, size=count)
    return [
        " ".join(
            f"w{number:x}" for number in np.searchsorted(bounds, generator.random(length)).tolist()
        )
        for length in lengths.tolist()
    ]
