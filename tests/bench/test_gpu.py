"""A step on a pretended GPU mixes no devices and never waits; `bench gpu` on a CPU."""

import json
import os
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from bench import gpu
from bench.cases import STAGE_ONE
from tests.sources import ROOT
from training.methods import method_names


@pytest.mark.skipif(
    shutil.which("g++") is None or torch.version.cuda is not None,
    reason="needs g++ and a CPU build of torch",
)
def test_a_step_makes_the_host_wait_for_nothing_and_mixes_no_devices(tmp_path):
    """Of every objective."""
    torch_folder, guard = Path(torch.__path__[0]), ROOT / "tests" / "pretend_gpu" / "guard.cpp"
    headers = [f"-I{torch_folder}/include", f"-I{torch_folder}/include/torch/csrc/api/include"]
    linked = [f"-L{torch_folder}/lib", f"-Wl,-rpath,{torch_folder}/lib", "-lc10", "-ltorch_cpu"]
    built = ["-shared", "-fPIC", "-std=c++20", *headers, guard]
    subprocess.run(["g++", *built, "-o", tmp_path / "guard.so", *linked], check=True)
    environment = os.environ | {"LD_PRELOAD": str(tmp_path / "guard.so")}
    command = [sys.executable, "-m", "tests.pretend_gpu.steps"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.splitlines() == [*method_names(), STAGE_ONE]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    """A CPU instead of the GPU, and tiny sizes."""
    tiny = {"MODEL": gpu.MODELS["tiny"], "BATCH": 6, "LENGTH": 16, "WARM": 1, "TIMED": 2}
    tiny |= {"DEVICE": torch.device("cpu"), "KILLED": 6, "LONG": 3, "WINDOW": 1, "LARGE": 600}
    for name, value in tiny.items():
        monkeypatch.setattr(gpu, name, value)


def test_right_steps_are_called_right_on_every_path(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu.infocse, "methods", lambda: ["infocse"])
    rows = list(gpu.right(tmp_path))
    assert len(rows) == 12 and all(row["right"] for row in rows), rows


def test_a_wrong_step_is_called_wrong(tmp_path):
    materials = gpu.Materials(tmp_path, gpu.TINY | {"initializer_range": 0.1}, 8, 32)
    model, inputs = gpu.sample(materials, "simcse", "padded")
    loss, *expected = gpu.gradients(model, inputs, torch.device("cpu"), "float32")
    row = gpu.compared(model, inputs, "float32", [loss, *(1.01 * part for part in expected)])
    assert not row["right"] and row["loss_error"] == 0 and 0.009 < row["gradient_error"] < 0.011


def test_every_path_is_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "PATHS", ["padded", "packed, graph"])  # compiling takes a minute
    rows = list(gpu.steps(tmp_path))
    assert len(rows) == 12
    assert all(row.get("ms", 0) > 0 for row in rows), rows


def test_what_fails_is_a_row_and_rows_of_other_parts_stay(tmp_path, monkeypatch):
    def broken(folder):
        yield gpu.attempt({"name": "a"}, lambda: 1 / 0)
        yield gpu.attempt({"name": "b"}, lambda: {"ms": 1})

    monkeypatch.setattr(gpu, "steps", broken)
    args = Namespace(parts=["step"], output=str(tmp_path / "gpu.json"))
    older = [{"part": part, "name": "c"} for part in ("run", "step")]
    (tmp_path / "gpu.json").write_text(json.dumps(older))
    kept, failed, done = gpu.rows(args)
    assert kept == older[0] and done == {"device": "CPU", "part": "step", "name": "b", "ms": 1}
    assert failed["failed"] == "ZeroDivisionError: division by zero"
    assert json.loads((tmp_path / "gpu.json").read_text()) == [kept, failed, done]


@pytest.mark.slow
def test_killed_runs_and_runs_at_once_are_the_script_s(tmp_path):
    *resumed, large, alone, together = gpu.runs(tmp_path)
    assert [row.get("equal") for row in resumed] == [True] * 5
    assert large["failed"].startswith("RuntimeError: exit code 0: ")  # there is room here
    assert alone["seconds"] > 0 and together["seconds"] > 0
