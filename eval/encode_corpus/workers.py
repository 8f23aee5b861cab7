"""Shards over the processes of one machine; a process takes the next shard when it has finished one."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from pathlib import Path

import torch

from common.errors import ProjectError
from eval.encode_corpus.job import Job
from eval.task import Encoder


def run(job: Job, paths: Sequence[Path], processes: int) -> Iterator[dict]:
    """The record of every shard, as they are finished.

    One process is this one. Of several, each has an encoder of its own, on the machine's GPUs in turn or on an equal
    part of the CPU's threads. After an error no new shard is begun, and those begun are finished.

    Raises:
        BadInput: as `Job.start` and `Job.encode_shard`.
        ProjectError: a process was killed.
    """
    if processes > 1:
        yield from _pool(job, paths, processes)
        return
    encode = job.start("cuda" if torch.cuda.is_available() else "cpu")
    for path in paths:
        yield job.encode_shard(encode, path)


def _pool(job: Job, paths: Sequence[Path], processes: int) -> Iterator[dict]:
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    shared = job, context.Value("i", 0), max(1, torch.get_num_threads() // processes)
    pool = ProcessPoolExecutor(processes, context, _begin, shared)
    try:
        for future in as_completed([pool.submit(_encode, path) for path in paths]):
            yield future.result()
    except BrokenProcessPool as error:
        raise ProjectError(
            "a worker process was killed, perhaps for lack of memory: the same command goes on; try fewer --processes"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


_worker: tuple[Job, str]  # of a worker process: the job and its device


def _begin(job: Job, counter, threads: int) -> None:
    """In a new worker process: take a device, and end when the process that started it ends, however it ends."""
    global _worker
    with counter.get_lock():
        number = counter.value
        counter.value += 1
    torch.set_num_threads(threads)
    count = torch.cuda.device_count()
    _worker = job, f"cuda:{number % count}" if count else "cpu"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


@cache
def _encoder() -> Encoder:
    """Made by the first shard and not when the process begins: there, an error would only break the pool."""
    job, device = _worker
    return job.start(device)


def _encode(path: Path) -> dict:
    return _worker[0].encode_shard(_encoder(), path)
