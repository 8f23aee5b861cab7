"""A step on the pretend device: no error, no mixed device, no synchronisation; and the measurements' parts on a CPU."""

import itertools
import json
import shutil
import time
from argparse import Namespace

import pytest
import torch

from bench import gpu, gpu_measures
from bench.__main__ import main
from common.errors import BadInput, ProjectError
from training.methods import method_names

OBJECTIVES = [*method_names(), "stage 1"]


@pytest.fixture(scope="module")
def buildable():
    if shutil.which("g++") is None or torch.version.cuda is not None:
        pytest.skip("the pretend device needs g++ and a CPU build of torch")


@pytest.fixture(scope="module")
def counted(buildable):
    """Rows of the command, at a tiny size, by objective."""
    return by_objective(half=True)


def by_objective(half):
    found = {}
    for row in gpu.pretended([], layers=2, batch=4, length=16, half=half):
        found.setdefault(row["objective"], []).append(row)
    return found


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_step_makes_the_host_wait_for_nothing_and_mixes_no_devices(counted, objective):
    check(counted[objective])
    sides = itertools.combinations(zip(*cases(counted[objective]), strict=True), 2)
    met = [set(zip(*each, strict=True)) for each in sides]
    assert [len(pairs) for pairs in met] == [4, 4, 4]


def cases(rows):
    return [(row["family"], row["packed"], row["precision"]) for row in rows]


@pytest.mark.slow
def test_so_does_every_case(buildable):
    for rows in by_objective(half=False).values():
        assert len(set(cases(rows))) == 8
        check(rows)


def check(rows):
    for row in rows:
        assert (row["mixed_devices"], row["synchronisations"]) == (0, 0), row
        assert row["kernels"] > 100


def test_the_log_sees_what_it_is_for(buildable, tmp_path):
    """Each kind of synchronisation, and a mixed device, where there is one: otherwise zeros would prove nothing."""
    done = gpu.run_pretending(["-c", SEES], tmp_path)
    assert done.stdout.split() == ["True"] * 7 + ["0"], done.stderr


SEES = """
import torch
from bench.pretend.device import LOG, Pretend, pretending
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


def test_without_a_gpu_the_measurement_is_refused_with_the_way_that_works(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BadInput, match="--pretend"):
        main(["gpu"])


@pytest.mark.parametrize("path", [path for path in gpu_measures.PATHS if "compiled" not in path])
@pytest.mark.parametrize("kind", ["infocse", "simcse"])
def test_the_measured_steps_run(kind, path):
    """On a CPU; what a GPU says of them no test here can know."""
    args = Namespace(model="tiny", batch=6, length=16, steps=6)
    row = gpu_measures.step(kind, path, args, torch.device("cpu"), 1.0)
    assert row["tokens_per_s"] > 0


def test_a_compiled_step_meets_batches_of_one_shape():
    args, model = Namespace(model="tiny", batch=6, length=16), gpu_measures.build("simcse", "packed", "tiny")
    made = {path: gpu_measures.batches("simcse", path, model, args) for path in ("packed", "packed, compiled")}
    counts = {path: {str(gpu_measures._sizes(each)) for each in found} for path, found in made.items()}
    assert len(made["packed"]) == gpu_measures.BATCHES and len(counts["packed"]) > 1
    assert len(made["packed, compiled"]) > 1 and len(counts["packed, compiled"]) == 1


@pytest.fixture
def with_a_gpu(monkeypatch):
    for name in ("is_available", "is_bf16_supported"):
        monkeypatch.setattr(torch.cuda, name, lambda **_: True)


def test_a_measurement_with_a_failed_part_is_shown_and_fails(with_a_gpu, monkeypatch, capsys):
    rows = [{"name": "step", "device": "GPU", "product_tflops": 1, "failed": "OutOfMemoryError"}, {"name": "encoding"}]
    monkeypatch.setattr(gpu_measures, "rows", lambda *_: rows)
    with pytest.raises(ProjectError, match="1 of 2 parts failed; the first: OutOfMemoryError"):
        main(["gpu"])
    assert "encoding" in capsys.readouterr().out


def test_a_part_that_fails_or_comes_too_late_is_a_row_and_a_stopped_measurement_keeps_its_rows(
    with_a_gpu, monkeypatch, tmp_path
):
    now, row = time.monotonic(), {"name": "a", "device": "GPU", "product_tflops": 1}
    failed = gpu_measures.measure(row, lambda: 1 / 0, now + 60)
    late = [gpu_measures.measure(row, lambda: time.sleep(30), end) for end in (now - 1, now + 0.2)]
    assert failed == row | {"failed": "ZeroDivisionError: division by zero"}
    assert late == [row | {"failed": "TimeoutError: the limit of 480 seconds was reached"}] * 2

    def stopped(*_):
        yield from (failed, row)
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu_measures, "rows", stopped)
    with pytest.raises(KeyboardInterrupt):
        main(["gpu", f"--output={tmp_path / 'gpu.json'}"])
    assert json.loads((tmp_path / "gpu.json").read_text()) == [failed, row]
    assert "division by zero" in (tmp_path / "gpu.md").read_text()


@pytest.mark.slow
def test_the_measured_runs_are_the_script_s_and_resume(tmp_path):
    args = Namespace(model="tiny", batch=6, length=16, steps=6)
    runs = gpu_measures.Runs(tmp_path, args, torch.device("cpu"))
    assert runs.whole()["seconds"] > 0
    assert runs.resumed()["bit_for_bit"]
