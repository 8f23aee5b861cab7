"""A signal to one of two processes: both leave after the same step, and the same command goes on."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]


def start(arguments):
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file"]
    command += [str(ROOT / "configs/accelerate/two_cpu_processes.yaml"), str(ROOT / "run_unsup.py"), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def worker_of(process, seconds=60):
    """pid of the launcher's second worker."""
    for _ in range(seconds * 10):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if len(children) == 2:
            return int(children[1])
        time.sleep(0.1)
    raise AssertionError("two workers did not start")


@pytest.mark.slow  # three launches of two processes
def test_a_signal_to_one_process_stops_both_after_the_same_step(tiny_bert, text_file, dev_file, tmp_path):
    run = tmp_path / "run"
    arguments = ["--method=simcse", f"--model_name_or_path={tiny_bert}", f"--train_file={text_file}",
                 f"--dev_file={dev_file}", "--test_tasks=none", f"--cache_dir={tmp_path / 'cache'}", "--max_steps=60",
                 "--eval_steps=60", "--save_steps=60", "--logging_steps=1", "--per_device_train_batch_size=4",
                 "--use_cpu=true", "--disable_tqdm=true"]  # fmt: skip
    first = start([*arguments, f"--output_dir={run}"])
    worker = worker_of(first)
    while not (run / "log.jsonl").exists():
        assert first.poll() is None, first.stderr.read()
        time.sleep(0.01)
    os.kill(worker, signal.SIGTERM)
    said = first.communicate(timeout=120)[1]
    stops = re.findall(r"stopped by (.*) after step ([0-9]+)", said)
    assert len(stops) == 2, said
    assert len({step for _, step in stops}) == 1
    assert {name for name, _ in stops} == {"SIGTERM", "a signal to another process"}
    step = stops[0][1]
    assert [path.name for path in run.glob("checkpoint-*")] == [f"checkpoint-{step}"]
    for output in (run, tmp_path / "whole"):
        done = start([*arguments, f"--output_dir={output}"])
        said = done.communicate(timeout=300)[1]
        assert done.returncode == 0, said
        assert (f"resuming from {run}/checkpoint-{step}" in said) == (output == run)
    one, other = (load_file(folder / "model.safetensors") for folder in (run, tmp_path / "whole"))
    assert max((one[name] - other[name]).abs().max().item() for name in one) == 0
