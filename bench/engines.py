"""What a query by cosine costs this index and the engines of docs/engines.md.

Windows are normalised Gaussian vectors around a thousand centres: generated, no text is searched.
Every engine has a process of its own for every size. Linux only; needs requirements-extra.txt.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

from bench.timing import apart, own_memory
from common.flags import positive
from eval.metrics.cosine import unit
from eval.retrieval.hybrid import best, cosines
from eval.vectors import Vectors, write
from search.index import Index

WIDTH, CENTRES, BLOCK, QUERIES, HITS = 384, 1000, 20_000, 20, 10
Search = Callable[[np.ndarray], list[int]]  # (D,) -> the best windows, best first


def add_arguments(parser: argparse.ArgumentParser) -> None:
    sizes = [10_000, 100_000, 1_000_000]
    parser.add_argument("--windows", type=positive, nargs="+", default=sizes, help="sizes")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=[*ENGINES])


def rows(args: argparse.Namespace) -> Iterator[dict]:
    """A row for each size and engine."""
    for count in args.windows:
        with TemporaryDirectory() as folder:
            apart(generate, Path(folder), count)
            for name in args.engines:
                first = apart(opened, Path(folder), name)  # some write files of their own
                figures = apart(searched, Path(folder), name)
                yield {"engine": name, "windows": count, "first_s": first, **figures}


def generate(folder: Path, count: int) -> None:
    """Write vectors.npy, the same as Parquet, queries.npy, and best.npy, their exact hits."""
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((CENTRES, WIDTH))

    def drawn(number: int) -> np.ndarray:
        vectors = generator.standard_normal((number, WIDTH))
        vectors += centres[generator.integers(CENTRES, size=number)]
        return unit(vectors).astype(np.float32)

    queries = drawn(QUERIES)
    np.save(folder / "queries.npy", queries)
    write(folder, (drawn(min(BLOCK, count - start)) for start in range(0, count, BLOCK)), "float32")
    stored = Vectors.read(folder).entries
    scores = cosines(queries, stored)
    np.save(folder / "best.npy", np.stack([best(of_query, HITS) for of_query in scores]))
    for start in range(0, count, BLOCK):
        block = stored[start : start + BLOCK]
        vectors = pa.FixedSizeListArray.from_arrays(block.ravel(), WIDTH)
        table = pa.table({"id": np.arange(start, start + len(block)), "vector": vectors})
        pq.write_table(table, folder / f"part-{start:09d}.parquet")


def opened(folder: Path, engine: str) -> float:
    """CPU seconds until an engine could answer for the first time."""
    before = time.process_time()
    ENGINES[engine](folder)
    return round(time.process_time() - before, 1)


def searched(folder: Path, engine: str) -> dict:
    """A query's median CPU time, the memory that the engine added, its share of the exact hits."""
    queries, exact = np.load(folder / "queries.npy"), np.load(folder / "best.npy")
    times, shared = [], 0
    with own_memory() as seen:
        search = ENGINES[engine](folder)
        for query, right in zip(queries, exact.tolist(), strict=True):
            before = time.process_time()
            found = search(query)
            times.append(1000 * (time.process_time() - before))
            shared += len({*found} & {*right})
    added, recall = round(max(seen) - seen[0]), round(shared / exact.size, 3)
    return {"query_ms": round(statistics.median(times), 1), "added_mib": added, "recall": recall}


def index(folder: Path) -> Search:
    place = folder / "index"
    if not place.exists():
        vectors = Vectors.read(folder)
        numbers = np.arange(len(vectors.entries))
        names = pa.array(numbers.astype(str), pa.large_string())
        documents = pa.table({"id": names, "title": names, "text": names})
        windows = np.stack([numbers, np.zeros_like(numbers), np.ones_like(numbers)], axis=1)
        Index(documents, windows, vectors).save(place, {"model": "none", "identity": "none"})
    loaded = Index.load(place)
    return lambda query: [hit.document for hit in loaded.search(query[None], [""], HITS)[0]]


def faiss(folder: Path) -> Search:
    import faiss

    faiss.omp_set_num_threads(1)
    flat = faiss.IndexFlatIP(WIDTH)
    flat.add(Vectors.read(folder).entries)
    return lambda query: flat.search(query[None], HITS)[1][0].tolist()


def polars(folder: Path) -> Search:
    os.environ["POLARS_MAX_THREADS"] = "1"
    import polars

    windows = polars.read_parquet(folder / "*.parquet")
    vectors = windows["vector"].to_numpy()

    def search(query: np.ndarray) -> list[int]:
        return windows.with_columns(cosine=vectors @ query).top_k(HITS, by="cosine")["id"].to_list()

    return search


def duckdb(folder: Path) -> Search:
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    cosine = f"array_cosine_similarity(vector::FLOAT[{WIDTH}], ?::FLOAT[{WIDTH}])"
    ask = f"SELECT id FROM '{folder}/*.parquet' ORDER BY {cosine} DESC LIMIT {HITS}"
    return lambda query: [row[0] for row in connection.execute(ask, [query.tolist()]).fetchall()]


def lancedb(folder: Path, approximate: bool = False) -> Search:
    import lancedb

    place = folder / f"lance-{approximate}"
    if not place.exists():
        files = pyarrow.dataset.dataset(sorted(map(str, folder.glob("*.parquet"))))
        made = lancedb.connect(place).create_table("windows", files.to_batches(), files.schema)
        if approximate:
            made.create_index(metric="cosine")
    table = lancedb.connect(place).open_table("windows")

    def search(query: np.ndarray) -> list[int]:
        near = table.search(query).distance_type("cosine").limit(HITS)
        return near.to_arrow()["id"].to_pylist()

    return search


ENGINES: dict[str, Callable[[Path], Search]] = {
    **{engine.__name__: engine for engine in (index, faiss, polars, duckdb, lancedb)},
    "lancedb-ivf-pq": partial(lancedb, approximate=True),
}
