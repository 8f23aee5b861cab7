"""Encode all shards of a corpus in local processes or on a Ray cluster."""

import json
import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch

from common import errors
from common.errors import BadInput, ProjectError
from common.files import ROOT, files_of
from common.memory import keep_freed_memory
from eval.encode import Encoder, device_here
from eval.vectors.job import Job

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when Ray is imported; without it Ray reports usage
logger = logging.getLogger(__name__)


def encode_corpus(job: Job, inputs: list[str], processes: int, ray: bool = False) -> list[dict]:
    """Encode every shard of files and folders, log progress, and return the records.

    Raises:
        BadInput: before anything is computed if possible; otherwise as `Job.start` and `Job.encode_shard`.
    """
    if processes < 1:
        raise BadInput(f"--processes {processes}: must be at least 1")
    if any(Path(name).resolve() == job.folder.resolve() for name in inputs):
        raise BadInput(f"--output {job.folder}: is also an input; choose another folder, such as a subfolder")
    paths = [path for name in inputs for path in files_of(Path(name), [job.folder])]
    job.check(paths)
    start, records = time.perf_counter(), []
    for record in (on_ray if ray else on_this_machine)(job, paths, min(processes, len(paths))):
        records.append(record)
        state = f"{record['rows']} rows" + ("" if record["new"] else " exist already")
        state += f", encoded again: {record['damaged']}" if record["damaged"] else ""
        logger.info("%d of %d shards: %s, %s", len(records), len(paths), record["source"], state)
    rows = sum(record["rows"] for record in records if record["new"])
    logger.info("%s: %d new rows in %.1f s", job.folder, rows, time.perf_counter() - start)
    return records


def on_this_machine(job: Job, paths: Sequence[Path], processes: int) -> Iterator[dict]:
    """The record of every shard, in the order they finish.

    A single process is the current one. Several have an encoder each and share the GPUs in turn, or the CPU's threads
    equally. After an error no new shard is started, and running ones are finished.

    Raises:
        BadInput: as `Job.start` and `Job.encode_shard`.
        ProjectError: a process was killed.
    """
    if processes == 1:
        yield from map(Worker(job), paths)
        return
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    shared = job, context.Value("i", 0), max(1, torch.get_num_threads() // processes)
    pool = ProcessPoolExecutor(processes, context, _begin, shared)
    try:
        for future in as_completed([pool.submit(_encode, path) for path in paths]):
            yield future.result()
    except BrokenProcessPool as error:
        remedy = "run the same command with fewer --processes to resume"
        raise ProjectError(f"a worker process was killed, possibly out of memory; {remedy}") from error
    finally:
        pool.shutdown(cancel_futures=True)


class Worker:
    """Encodes shards with one encoder, made for the first shard: a pool loses errors of its initializer."""

    def __init__(self, job: Job, device: str | None = None) -> None:
        self._job = job
        self._device = device or device_here()
        self._encode: Encoder | None = None

    def __call__(self, path: Path) -> dict:
        self._encode = self._encode or self._job.start(self._device)
        return self._job.encode_shard(self._encode, path)


_worker: Worker  # in a worker process


def _begin(job: Job, counter, threads: int) -> None:
    """Set up a new worker process: choose a device, and exit when the parent process ends for any reason."""
    global _worker
    with counter.get_lock():
        number = counter.value
        counter.value += 1
    torch.set_num_threads(threads)
    keep_freed_memory()
    count = torch.cuda.device_count()
    _worker = Worker(job, f"cuda:{number % count}" if count else "cpu")
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)


def _encode(path: Path) -> dict:
    return _worker(path)


class _RayWorker(Worker):
    """A Ray actor: returns a shard's record, or class and message of our error, which Ray would wrap."""

    def __call__(self, batch: dict) -> dict:
        return {"record": [json.dumps(self._record(Path(path))) for path in batch["path"]]}

    def _record(self, path: Path) -> dict:
        try:
            return super().__call__(path)
        except ProjectError as error:
            return {"error": [type(error).__name__, str(error)]}


def on_ray(job: Job, paths: Sequence[Path], processes: int) -> Iterator[dict]:
    """The record of every shard, in the order they finish; `processes` actors, with one GPU each if there are any.

    Ray is optional (requirements-extra.txt). RAY_ADDRESS names a running cluster; without it, Ray starts locally.
    Inputs and outputs must be on a file system that all machines share.

    Raises:
        BadInput: Ray is not installed; or as `Job.start` and `Job.encode_shard`.
    """
    try:
        import ray
    except ImportError as error:
        raise BadInput("--ray needs Ray: pip install the `ray[data]` line of requirements-extra.txt") from error
    if not ray.is_initialized():
        ray.init(include_dashboard=False, logging_level=logging.WARNING, log_to_driver=False,
                 runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}})  # fmt: skip
    ray.data.DataContext.get_current().enable_progress_bars = False
    gpus = 1 if ray.cluster_resources().get("GPU") else 0
    items = ray.data.from_items([{"path": str(path.absolute())} for path in paths], override_num_blocks=len(paths))
    actors = ray.data.ActorPoolStrategy(size=processes)
    for row in items.map_batches(
        _RayWorker, fn_constructor_args=[job], batch_size=1, compute=actors, num_gpus=gpus
    ).iter_rows():
        record = json.loads(row["record"])
        if "error" in record:
            kind, message = record["error"]
            raise getattr(errors, kind)(message)
        yield record
