"""Runs of run_unsup.py in one or two processes."""

import os
import socket
import subprocess
import sys

from tests.sources import ROOT

SCRIPT = str(ROOT / "run_unsup.py")
TWO_PROCESSES = str(ROOT / "configs" / "accelerate" / "two_cpu_processes.yaml")


def flags(**values):
    """A command line of a short run on a CPU."""
    common = {"test_tasks": "none", "per_device_train_batch_size": 4, "use_cpu": "true", "disable_tqdm": "true"}
    return [f"--{name}={value}" for name, value in (common | values).items()]


def start(arguments, processes=2):
    """Start a run, two processes by accelerate's launcher, which ends with 1 whatever they end with."""
    launcher = ["-m", "accelerate.commands.launch", "--config_file", TWO_PROCESSES]
    return _start([*(launcher if processes == 2 else []), SCRIPT, *arguments])


def finish(process, seconds=300):
    """What a run that has to succeed writes to its standard error."""
    said = process.communicate(timeout=seconds)[1]
    assert process.returncode == 0, said[-3000:]
    return said


def start_both(arguments, program=(SCRIPT,), others=None):
    """Start each of two processes as a cluster's scheduler does; `others` are rank 1's arguments where they differ."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    return [
        _start([*program, *words], common | {"RANK": rank, "LOCAL_RANK": rank})
        for rank, words in (("0", arguments), ("1", others or arguments))
    ]


def _start(words, environment=None):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | (environment or {})
    return subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True, env=environment)
