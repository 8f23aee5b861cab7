"""Encode shards of text (lines or a Parquet column) in one process or several; a later run resumes."""

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from common.errors import BadInput, ProjectError, first_line
from common.files import files_of, open_regular, sha256
from common.memory import keep_freed_memory
from eval.encode import Encoder, device_here
from eval.vectors import VectorStore

ROWS = 20_000  # texts held at once
_PARQUET = b"PAR1"  # how a file begins, whatever its name
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """How to encode shards; picklable, for other processes.

    Attributes:
        make_encode: device -> an encoder with `identity` and `max_length`, like `eval.encode.Encode`.
        lines: a text file -> (number, line), as `data.lines.texts_by_line`.
        store: where to write the vectors.
        column: of Parquet inputs.
    """

    make_encode: Callable[[str], Encoder]
    lines: Callable[[Path], Iterator[tuple[int, str]]]
    store: VectorStore
    column: str = "text"

    def begin(self, device: str) -> Encoder:
        """Make the encoder and claim the folder for its vectors."""
        encode = self.make_encode(device)
        self.store.claim({"model": encode.identity, "max_length": encode.max_length, "dtype": self.store.dtype})
        return encode

    def encode_shard(self, encode: Encoder, path: Path) -> dict:
        """Write one shard's vectors unless they exist, and return its record, see `VectorStore.shard`.

        Raises:
            BadInput: as `texts`; or the text changes while it is encoded, or has changed since it was.
        """
        with open_regular(path) as file:  # BadInput for a missing file or a pipe
            parquet = file.read(len(_PARQUET)) == _PARQUET
        source = {"source": path.name, "sha256": sha256(path)} | ({"column": self.column} if parquet else {})

        def parts() -> Iterator[np.ndarray]:
            texts = _cells(path, self.column) if parquet else (text for _, text in self.lines(path))
            rows = 0
            while piece := list(islice(texts, ROWS)):  # an empty line is an empty text, so no row is lost
                rows += len(piece)
                yield encode(piece)
            if not rows:
                raise BadInput(f"{path}: contains no text; remove it from the inputs")
            if sha256(path) != source["sha256"]:
                raise BadInput(f"{path}: changed while it was encoded; run the command again")

        return self.store.shard(stem_of(path), source, parts)


def stem_of(path: Path) -> str:
    """The name of a shard's outputs: the file name without `.gz`, `.xz`, `.bz2`, `.zst`, then `.txt`, `.parquet`."""
    name = path.name
    for endings in ((".gz", ".xz", ".bz2", ".zst"), (".txt", ".parquet")):
        name = next((name.removesuffix(ending) for ending in endings if name.endswith(ending)), name)
    return name


def _cells(path: Path, column: str) -> Iterator[str]:
    try:
        with pq.ParquetFile(path) as file:
            file.schema_arrow.field(column)  # KeyError without it
            for batch in file.iter_batches(ROWS, columns=[column]):
                texts = batch.column(0).to_pylist()
                if not all(isinstance(text, str) for text in texts):
                    raise TypeError("a row is null or no string")
                yield from texts
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise BadInput(
            f"{path}: not a complete Parquet file with strings in '{column}' ({first_line(error)})"
        ) from error


def encode_corpus(job: Job, inputs: list[str], processes: int) -> list[dict]:
    """Encode every shard of files and folders, log progress, and return the records.

    Raises:
        BadInput: two shards share an output; or as `Job.begin` and `Job.encode_shard`.
        ProjectError: a process was killed.
    """
    paths = [path for name in inputs for path in files_of(Path(name), [job.store.folder])]
    sources: dict[str, Path] = {}
    for path in paths:
        if (other := sources.setdefault(stem_of(path), path)) is not path:
            raise BadInput(f"{other} and {path} would both be written to {stem_of(path)}.npy; rename one")
    start, records = time.perf_counter(), []
    for record in _records(job, paths, min(processes, len(paths))):
        records.append(record)
        state = f"{record['rows']} rows" + ("" if record["new"] else " exist already")
        logger.info("%d of %d shards: %s, %s", len(records), len(paths), record["source"], state)
    rows = sum(record["rows"] for record in records if record["new"])
    logger.info("%s: %d new rows in %.1f s", job.store.folder, rows, time.perf_counter() - start)
    return records


def _records(job: Job, paths: Sequence[Path], processes: int) -> Iterator[dict]:
    """The record of every shard, in the order they finish.

    A single process is the current one. Several have an encoder each and share the GPUs in turn, or the CPU's threads
    equally. After an error no new shard is started, and running ones are finished.
    """
    if processes == 1:
        encode = job.begin(device_here())
        yield from (job.encode_shard(encode, path) for path in paths)
        return
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    shared = context.Value("i", 0), max(1, torch.get_num_threads() // processes)
    pool = ProcessPoolExecutor(processes, context, _begin, shared)
    try:
        for future in as_completed([pool.submit(_encode_shard, job, path) for path in paths]):
            yield future.result()
    except BrokenProcessPool as error:
        remedy = "run the same command with fewer --processes to resume"
        raise ProjectError(f"a worker process was killed, possibly out of memory; {remedy}") from error
    finally:
        pool.shutdown(cancel_futures=True)


_encode: Encoder | None = None  # of a worker process


def _encode_shard(job: Job, path: Path) -> dict:
    """The encoder is made for the first shard: a pool loses errors of its initializer."""
    global _encode
    _encode = _encode or job.begin(device_here())
    return job.encode_shard(_encode, path)


def _begin(counter, threads: int) -> None:
    """Set up a new worker process: choose a device, and exit when the parent process ends for any reason."""
    with counter.get_lock():
        number = counter.value
        counter.value += 1
    torch.set_num_threads(threads)
    keep_freed_memory()
    if count := torch.cuda.device_count():
        torch.cuda.set_device(number % count)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)
