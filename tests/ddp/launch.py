"""Runs of run_unsup.py in one or two processes."""

import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import run_unsup
from common.errors import run_command
from tests.sources import ROOT
from training import stages  # noqa: F401  imported now, not in every process

SCRIPT = str(ROOT / "run_unsup.py")
TWO_PROCESSES = str(ROOT / "configs" / "accelerate" / "two_cpu_processes.yaml")
# Not forked from the tests' own process: a child forked while a library's thread holds a lock waits
# for it forever. What is named here is imported once, by the process that all are forked from.
multiprocessing.set_forkserver_preload(["pytest", "tests.methods", "tests.ddp.launch"])
FORKED = multiprocessing.get_context("forkserver")


def flags(**values):
    """A command line of a short run on a CPU."""
    common = {
        "test_tasks": "none",
        "per_device_train_batch_size": 4,
        "use_cpu": "true",
        "bf16": "false",
        "disable_tqdm": "true",
    }
    return [f"--{name}={value}" for name, value in (common | values).items()]


def start(arguments):
    """Start a run in two processes by accelerate's launcher, which ends with 1 if they fail."""
    command = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--config_file",
        TWO_PROCESSES,
        SCRIPT,
        *arguments,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def finish(process, seconds=300):
    """What a run that has to succeed writes to its standard error."""
    said = process.communicate(timeout=seconds)[1]
    assert process.returncode == 0, said[-3000:]
    return said


class Rank:
    """A process of a run as a cluster's scheduler starts it."""

    def __init__(self, arguments, environment, before):
        descriptor, log = tempfile.mkstemp()
        os.close(descriptor)
        self.log = Path(log)
        self._process = FORKED.Process(
            target=_run, args=(arguments, environment, log, before), daemon=True
        )
        self._process.start()

    def poll(self):
        """Its exit code; None while it runs."""
        return self._process.exitcode

    def send_signal(self, number):
        os.kill(self._process.pid, number)

    def end(self, seconds=120):
        """Wait for it, kill it if that takes too long; returns its standard error."""
        self._process.join(seconds)
        self._process.kill()
        self._process.join()
        said = self.log.read_text(encoding="utf-8")
        self.log.unlink()
        return said


def start_both(arguments, others=None, before=None):
    """Start both processes of a run.

    Args:
        others: rank 1's arguments where they differ.
        before: called in each process before its run.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
    }
    return [
        Rank(words, common | {"RANK": rank, "LOCAL_RANK": rank}, before)
        for rank, words in (("0", arguments), ("1", others or arguments))
    ]


def _run(arguments, environment, log, before):
    torch.set_num_threads(1)
    os.environ |= environment
    os.dup2(os.open(log, os.O_WRONLY), 2)
    if before:
        before()
    run_command(lambda: run_unsup.main(arguments))
