"""Runs that are killed, stopped and starved, and what must be true of them afterwards."""

import hashlib
import importlib
import multiprocessing
import os
import re
import signal
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file

from common.errors import run_command
from tests.faults.breaking import breaking
from training import stages  # noqa: F401  imported now, not in every process
from training.run_folder import checkpoint_problem, checkpoints, read_run, step_of

# Not forked from the tests' own process: a child forked while a library's thread holds a lock waits
# for it forever. What is named here is imported once, by the process that all are forked from.
multiprocessing.set_forkserver_preload(["pytest", "tests.methods", "tests.faults.harness"])
FORKED = multiprocessing.get_context("forkserver")
FLAGS = {"method": "simcse", "max_steps": 8, "eval_steps": 2, "save_steps": 3, "logging_steps": 1}
FLAGS |= {"per_device_train_batch_size": 8, "learning_rate": "1e-3", "test_tasks": "none"}
FLAGS |= {"use_cpu": "true", "bf16": "false", "disable_tqdm": "true"}


class Run:
    """A script in a process of its own, forked from one that has imported it already. `around`
    makes a context for it, in its process. If it `has_workers`, it may start processes itself, and
    is not ended with the tests."""

    def __init__(self, script, argv, log, environment=None, around=nullcontext, has_workers=False):
        self.log = Path(log)
        given = (script, argv, environment or {}, self.log, around)
        self._process = FORKED.Process(target=_run, args=given, daemon=not has_workers)
        self._process.start()
        self.pid = self._process.pid

    def poll(self):
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.exitcode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def end(self, seconds=120):
        """Wait for it, kill it if that takes too long; returns what it has printed."""
        self._process.join(seconds)
        self._process.kill()
        self._process.join()
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait(self):
        """Its exit code at its end."""
        self.end()
        return self.poll()


def _run(script, arguments, environment, log, around):
    torch.set_num_threads(1)
    multiprocessing.set_start_method("fork", force=True)  # as in a run of its own
    # A shell's background jobs ignore the first, those of nohup the second.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ |= environment
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    with around():
        run_command(lambda: importlib.import_module(script).main(arguments))


class Runs:
    """Runs of run_unsup.py with the same flags, and the folder of their outputs and logs."""

    def __init__(self, folder, **flags):
        self.folder, self.runs = Path(folder), []
        self.flags = FLAGS | {"cache_dir": self.folder / "cache"} | flags

    def argv(self, output, **flags):
        values = self.flags | {"output_dir": self.folder / output} | flags
        return [f"--{name}={value}" for name, value in values.items()]

    def start(self, output, faults=None, **flags):
        """Begin a run."""
        around = partial(breaking, str(self.folder / output), faults or {})
        log = self.folder / f"{output}.log"
        run = Run("run_unsup", self.argv(output, **flags), log, around=around, has_workers=True)
        self.runs.append(run)
        return run

    def run(self, output, faults=None, **flags):
        return self.start(output, faults, **flags).wait()

    def close(self):
        """End what a failed test has left."""
        for run in self.runs:
            run.end(0)

    def said(self, output):
        return (self.folder / f"{output}.log").read_text(encoding="utf-8", errors="replace")

    def events(self, output):
        """How many events a run that ended by itself has had."""
        return int(re.findall(r"^([0-9]+) events$", self.said(output), re.MULTILINE)[-1])

    def finish(self, output, expected, **flags):
        """The same command ends an interrupted run, with the weights of the undisturbed run."""
        check_at_rest(self.folder / output)
        code = self.run(output, **flags)
        assert code == 0, f"the same command ended with {code}: {self.said(output)}"
        assert weights(self.folder / output) == expected, "other weights"


def weights(folder):
    """sha256 of the result of a finished run."""
    assert read_run(folder)["status"] == "finished"
    files = sorted(folder.glob("*.safetensors"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def check_at_rest(folder):
    """What must hold whenever no process is at work: valid checkpoints and finite files only. A
    folder that a killed process was writing has a name of its own, which no resume reads."""
    if not (folder / "run.json").exists():
        return
    run_id = read_run(folder)["run_id"]
    for checkpoint in checkpoints(folder):
        assert checkpoint_problem(checkpoint, run_id) is None, checkpoint
    for file in folder.rglob("*.safetensors"):
        if not any(part.startswith(".") for part in file.relative_to(folder).parts):
            floats = [t for t in load_file(file).values() if t.is_floating_point()]
            assert all(t.isfinite().all() for t in floats), file


def newest_step(folder):
    saved = checkpoints(folder) if folder.exists() else []
    return step_of(saved[0]) if saved else 0


def last_logged(folder):
    """The last step whose loss a run has logged; a killed run's last line may be cut."""
    log = folder / "log.jsonl"
    steps = re.findall(r'"step": ([0-9]+)', log.read_text(encoding="utf-8")) if log.exists() else []
    return int(steps[-1]) if steps else 0
