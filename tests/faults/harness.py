"""Runs that are killed, stopped and starved, and what must be true of them afterwards."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from tests.sources import ROOT
from training.run_folder import checkpoint_problem, checkpoints, read_run, step_of

FLAGS = {
    "method": "simcse",
    "max_steps": 8,
    "eval_steps": 2,
    "save_steps": 3,
    "logging_steps": 1,
    "per_device_train_batch_size": 8,
    "learning_rate": "1e-3",
    "test_tasks": "none",
    "use_cpu": "true",
    "bf16": "false",
    "disable_tqdm": "true",
}


class Server:
    """A warm process to fork runs from, see server.py.

    Args:
        folder: for the outputs and logs.
        flags: of every run: the model, the text and the dev pairs.
    """

    def __init__(self, folder, **flags):
        self.folder = Path(folder)
        self.flags = FLAGS | {"cache_dir": self.folder / "cache"} | flags
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        pipe = subprocess.PIPE
        command = [sys.executable, str(Path(__file__).with_name("server.py"))]
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=ROOT
        )

    def argv(self, output, **flags):
        values = self.flags | {"output_dir": self.folder / output} | flags
        return [f"--{name}={value}" for name, value in values.items()]

    def log(self, output):
        return self.folder / f"{output.replace('/', '-')}.log"

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, output, faults=None, **flags):
        """Begin a run; its pid."""
        log = str(self.log(output))
        return self.ask({"argv": self.argv(output, **flags), "log": log, "faults": faults or {}})

    def wait(self, pid):
        """Return code of a run, negative for a signal."""
        return self.ask({"wait": pid})

    def run(self, output, faults=None, **flags):
        return self.wait(self.start(output, faults, **flags))

    def said(self, output):
        return self.log(output).read_text(encoding="utf-8", errors="replace")

    def events(self, output):
        """How many events a run that ended by itself has had."""
        return int(re.findall(r"^([0-9]+) events$", self.said(output), re.MULTILINE)[-1])

    def finish(self, output, expected, **flags):
        """The same command ends an interrupted run, with the weights of the undisturbed run."""
        check_at_rest(self.folder / output)
        code = self.run(output, **flags)
        assert code == 0, f"the same command ended with {code}: {self.said(output)}"
        assert weights(self.folder / output) == expected, "other weights"

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def weights(folder):
    """sha256 of the result of a finished run."""
    assert read_run(folder)["status"] == "finished"
    return hashlib.sha256(
        b"".join(path.read_bytes() for path in sorted(folder.glob("*.safetensors")))
    ).hexdigest()


def check_at_rest(folder):
    """What must hold whenever no process is at work: valid checkpoints and finite files only.

    A folder that a killed process was writing has a name of its own, which no resume reads.
    """
    if not (folder / "run.json").exists():
        return
    run_id = read_run(folder)["run_id"]
    for checkpoint in checkpoints(folder):
        assert checkpoint_problem(checkpoint, run_id) is None, checkpoint
    for file in folder.rglob("*.safetensors"):
        if not any(part.startswith(".") for part in file.relative_to(folder).parts):
            assert all(
                torch.isfinite(t).all() for t in load_file(file).values() if t.is_floating_point()
            ), file


def newest_step(folder):
    saved = checkpoints(folder) if folder.exists() else []
    return step_of(saved[0]) if saved else 0


def last_logged(folder):
    """The last step whose loss a run has logged; a killed run's last line may be cut."""
    log = folder / "log.jsonl"
    steps = re.findall(r'"step": ([0-9]+)', log.read_text(encoding="utf-8")) if log.exists() else []
    return int(steps[-1]) if steps else 0
