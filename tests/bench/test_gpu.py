"""A step on the pretend device: no mixed device and no synchronisation; the parts of `bench gpu` on a CPU."""

import json
import os
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from bench import gpu, gpu_fast, gpu_right, gpu_runs
from bench.cases import Materials
from tests.refusals import refused
from tests.sources import ROOT
from training.methods import method_names


def run_pretending(folder, *argv):
    """Run a process with the pretend device, a library in `folder` that must be loaded before torch."""
    environment = os.environ | {"LD_PRELOAD": str(folder / "guard.so")}
    done = subprocess.run(
        [sys.executable, *argv], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.skipif(
    shutil.which("g++") is None or torch.version.cuda is not None,
    reason="needs g++ and a CPU build of torch",
)
def test_a_step_makes_the_host_wait_for_nothing_and_mixes_no_devices(tmp_path):
    """Of every objective; the log sees a mixed device and each kind of waiting where there is one."""
    torch_folder, guard = Path(torch.__path__[0]), ROOT / "tests" / "pretend_gpu" / "guard.cpp"
    headers = [f"-I{torch_folder}/include", f"-I{torch_folder}/include/torch/csrc/api/include"]
    linked = [f"-L{torch_folder}/lib", f"-Wl,-rpath,{torch_folder}/lib", "-lc10", "-ltorch_cpu"]
    built = [
        "-shared",
        "-fPIC",
        "-std=c++20",
        *headers,
        guard,
        "-o",
        tmp_path / "guard.so",
        *linked,
    ]
    subprocess.run(["g++", *built], check=True)
    assert run_pretending(tmp_path, "-c", SEES) == ["True"] * 7 + ["0"]

    cases = {}
    for row in map(
        json.loads, run_pretending(tmp_path, "-m", "tests.pretend_gpu.steps", "2", "4", "16")
    ):
        assert (row["mixed_devices"], row["synchronisations"]) == (0, 0), row
        assert row["operations"] > 100
        cases.setdefault(row["objective"], []).append(
            (row["family"], row["packed"], row["precision"])
        )
    assert cases.keys() == {*method_names(), "stage 1"}
    for combinations in cases.values():
        assert [len(set(values)) for values in zip(*combinations, strict=True)] == [2, 2, 2]


SEES = """
import torch
from tests.pretend_gpu.device import LOG, Pretend, pretending
x, mask = Pretend(torch.randn(3, 4)), Pretend(torch.tensor([True, False, True]))
waits = [lambda: float(x.sum()), lambda: x[mask], lambda: mask.nonzero(), lambda: x[[0, 1]],
         lambda: torch.tensor([1, 2], device="cuda:0"), lambda: torch.ones(3).to("cuda:0")]
with pretending():
    for work in waits:
        LOG.reset(active=True)
        work()
        print(LOG.synchronisations.total() == 1)
    LOG.reset(active=True)
    x + torch.ones(3, 4)
    print(LOG.mixed.total() == 1)
    LOG.reset(active=True)
    (x @ x.T).softmax(-1).masked_fill_(mask, 0.0)[:2].to(torch.bfloat16)
    print(LOG.synchronisations.total())
"""


def test_the_committed_rows_give_the_committed_page():
    results = ROOT / "results"
    rows = json.loads((results / "gpu-h200.json").read_text(encoding="utf-8"))
    assert gpu.page(rows) == (results / "gpu-h200.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def materials(tmp_path_factory):
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    sizes = dropout | gpu_right.SHAPES["tiny"]
    return Materials(
        tmp_path_factory.mktemp("materials"),
        2,
        gpu_right.BATCH,
        gpu_right.LENGTH,
        ("bert",),
        **sizes,
    )


@pytest.mark.parametrize("name", ["simcse", "infocse", "stage 1"])
def test_a_right_step_is_called_right_on_every_path(materials, name):
    compared = gpu_right.Compared(materials, name, torch.device("cpu"))
    for path in ("padded", "packed"):
        for precision in ("float32", "float32, graph"):
            assert compared.against(path, precision)["right"], (path, precision)


def test_a_wrong_step_is_called_wrong(materials):
    compared = gpu_right.Compared(materials, "simcse", torch.device("cpu"))
    assert compared.against("padded", "float32")["right"]
    compared.reference = compared.reference._replace(
        gradients=[1.01 * part for part in compared.reference.gradients]
    )
    assert not compared.against("padded", "float32")["right"]


def test_every_path_of_the_timed_steps_runs(monkeypatch):
    monkeypatch.setattr(gpu_fast, "LARGE", 2)
    args = Namespace(model="tiny", batch=6, length=16, steps=6)
    for row, work in gpu_fast.works(args, torch.device("cpu")):
        assert work()["ms"] > 0, row


def test_what_fails_or_comes_too_late_is_a_row_and_the_next_goes_on():
    now = time.monotonic()
    works = [({"name": "a"}, lambda: 1 / 0), ({"name": "b"}, lambda: {"ms": 1})]
    failed, done = gpu.within(works, now + 60)
    assert failed == {"name": "a", "failed": "ZeroDivisionError: division by zero"} and done == {
        "name": "b",
        "ms": 1,
    }
    [late] = gpu.within([({"name": "c"}, lambda: time.sleep(30))], now + 1.2)
    assert late["failed"].startswith("TimeoutError") or late["failed"] == "no time left for it"


def test_rows_of_parts_that_are_gone_stay_and_the_page_does_not_replace_the_rows(
    tmp_path, monkeypatch
):
    facts = {"name": "", "device": "CPU", "torch": "2"}
    older, fast, safe = (facts | {"part": part} for part in ("older", "fast", "safe"))
    monkeypatch.setattr(gpu, "measured", lambda *_: [fast])
    args = Namespace(device="cpu", parts=["fast"], output=str(tmp_path / "gpu.json"))
    (tmp_path / "gpu.json").write_text(json.dumps([older, safe]))
    assert gpu.rows(args) == [fast, safe, older] == json.loads((tmp_path / "gpu.json").read_text())
    args.output = str(tmp_path / "gpu.md")
    assert "give FILE.json" in refused(gpu.rows, args)


@pytest.mark.slow
def test_killed_and_stopped_runs_are_the_script_s_and_resume(tmp_path):
    args = Namespace(model="tiny", batch=6, length=16, steps=16)
    for row, work in gpu_runs.safe(args, torch.device("cpu")):
        assert work()["bit_for_bit"], row
