"""Runs of the scripts in several processes, on one machine or as on two."""

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

from tests.faults.forked import until
from tests.faults.harness import Run
from tests.sources import ROOT


def flags(**values):
    """A command line of a short run on a CPU; None leaves a flag out."""
    common = {"test_tasks": "none", "per_device_train_batch_size": 4, "use_cpu": "true"}
    common |= {"bf16": "false", "disable_tqdm": "true"}
    given = {name: value for name, value in (common | values).items() if value is not None}
    return [f"--{name}={value}" for name, value in given.items()]


def start(arguments, script="run_unsup", config="two_cpu_processes", options=()):
    """Start a run, or a module, by accelerate's launcher, which ends with 1 if a process fails."""
    started = [str(ROOT / f"{script}.py")] if script.startswith("run_") else ["-m", script]
    options = [f"--config_file={ROOT}/configs/accelerate/{config}.yaml", *options]
    command = [sys.executable, "-m", "accelerate.commands.launch", *options, *started, *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT)


def start_machines(arguments, script="run_unsup"):
    """Start a run as on two machines: a launcher for each, with two processes."""
    options = ["--num_processes=4", "--main_process_ip=127.0.0.1"]
    options.append(f"--main_process_port={free_port()}")
    ranks = [[*options, f"--machine_rank={rank}"] for rank in (0, 1)]
    return [start(arguments, script, "multi_node", options) for options in ranks]


def finish(process):
    """What a run that has to succeed writes to its standard error."""
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said[-3000:]
    return said


def worker_of(process):
    """pid of the launcher's second worker."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return int(until(lambda: children.read_text().split()[1:])[0])


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start_ranks(arguments, others=None, around=nullcontext, script="run_unsup", machines=1):
    """Start every process of every machine as a cluster's scheduler does, without a launcher.
    `others` are the arguments of rank 1 where they differ; `around` makes a context for each."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common |= {"WORLD_SIZE": str(2 * machines), "LOCAL_WORLD_SIZE": "2"}
    ranks, logs = [], Path(tempfile.mkdtemp())
    for rank in range(2 * machines):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank % 2)}
        words = others if others and rank == 1 else arguments
        ranks.append(Run(script, words, logs / str(rank), common | own, around))
    return ranks
