"""Shards over the machines of a Ray cluster, by Ray Data; outputs and inputs lie on a file system they share.

Ray is optional (requirements-extra.txt). RAY_ADDRESS names a running cluster; without it, Ray starts on this machine.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from common import errors
from eval.encode_corpus.job import Job
from eval.task import Encoder

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read at import: Ray would report the run to its makers
ROOT = Path(__file__).parents[2]


class _Worker:
    """One actor: an encoder, and the shards it is given."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.encode: Encoder | None = None

    def __call__(self, batch: dict) -> dict:
        return {"record": [json.dumps(self._record(Path(path))) for path in batch["path"]]}

    def _record(self, path: Path) -> dict:
        """The shard's record, or the error of ours by name and words: Ray would wrap it and lose the original."""
        try:
            if self.encode is None:
                self.encode = self.job.start("cuda" if torch.cuda.is_available() else "cpu")
            return self.job.encode_shard(self.encode, path)
        except errors.ProjectError as error:
            return {"error": [type(error).__name__, str(error)]}


def run(job: Job, paths: Sequence[Path], processes: int) -> Iterator[dict]:
    """The record of every shard, as they are finished; `processes` actors, with a GPU each where there are any.

    Raises:
        BadInput: Ray is not installed; or as `Job.start` and `Job.encode_shard`.
    """
    try:
        import ray
    except ImportError as error:
        raise errors.BadInput("--ray needs Ray: pip install the `ray[data]` line of requirements-extra.txt") from error
    if not ray.is_initialized():
        ray.init(include_dashboard=False, logging_level=logging.WARNING, log_to_driver=False,
                 runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}})  # fmt: skip
    ray.data.DataContext.get_current().enable_progress_bars = False
    gpus = 1 if ray.cluster_resources().get("GPU") else 0
    made = ray.data.from_items([{"path": str(path.absolute())} for path in paths], override_num_blocks=len(paths))
    actors = ray.data.ActorPoolStrategy(size=processes)
    for row in made.map_batches(
        _Worker, fn_constructor_args=[job], batch_size=1, compute=actors, num_gpus=gpus
    ).iter_rows():
        record = json.loads(row["record"])
        if "error" in record:
            kind, message = record["error"]
            raise getattr(errors, kind)(message)
        yield record
