"""What a run does otherwise on a GPU, where the tests have none: here each is one by name."""

from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from common.errors import CheckpointRefused
from models import fast
from tests.methods import build_model, make_batch, mask_of
from tests.refusals import refused
from training import graph, stages
from training.builders import plan
from training.graph import GraphedStep
from training.methods import UNSUP
from training.run_arguments import RunArguments, check_machine
from training.run_folder import open_run, write_run
from training.settings import fill
from training.stages import new_record
from training.trainer import Steps


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    """A run's arguments on a device of a name."""
    monkeypatch.setattr(stages, "provenance", lambda on_gpu: {"on_gpu": on_gpu})

    def on(device, **flags):
        by_name = property(lambda self: torch.device(self._setup_devices and device))
        monkeypatch.setattr(RunArguments, "device", by_name)
        usual = {"output_dir": str(tmp_path / "run"), "use_cpu": True, "bf16": False}
        return RunArguments(**usual | flags)

    return on


@pytest.mark.parametrize(("began", "goes_on"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_run_must_resume_on_the_type_of_device_it_began_on(arguments, tmp_path, began, goes_on):
    def started(device):
        arguments(device)
        flags = {"method": "simcse", "output_dir": tmp_path / "run", "use_cpu": True}
        return new_record(fill(UNSUP, flags), {})

    first, other = started(began), started(goes_on)
    assert [record["on_gpu"] for record in (first, other)] == [began == "cuda", goes_on == "cuda"]
    (tmp_path / "run" / "best").mkdir(parents=True)
    write_run(tmp_path / "run", first | {"status": "running"})
    with pytest.raises(CheckpointRefused, match="device"):
        open_run(str(tmp_path / "run"), other["trajectory"])


def test_tf32_is_an_option_and_in_the_plan(arguments, monkeypatch):
    sampler = SimpleNamespace(count=1000, held=[])
    args, model = arguments("cuda"), SimpleNamespace(parameters=list, config=None)
    assert args.tf32 is None
    assert arguments("cuda", torch_compile=True).tf32 is False, "transformers would switch it on"
    assert "1 on cuda, float32\n" in plan(model, args, sampler, 15, {"last": ""})
    args.tf32 = True
    assert "1 on cuda, float32, TF32 products\n" in plan(model, args, sampler, 15, {"last": ""})
    with pytest.raises(ValueError, match="--tf32 requires"):
        arguments("cpu", tf32=True)


def test_two_gpus_in_one_process_are_refused():
    refused(check_machine, SimpleNamespace(n_gpu=2), 1000, 0, match=r"DataParallel .*one_gpu.yaml")


def test_fp16_takes_an_optimizer_that_tells_of_a_skipped_step(arguments):
    """A fused one skips in its kernel, so accelerate takes the step for done."""
    assert arguments("cuda").optim == "adamw_torch_fused"
    assert arguments("cuda", fp16=True, use_cpu=False).optim == "adamw_torch"


@pytest.mark.parametrize("skipped", [False, True])
def test_a_step_that_fp16_skips_does_not_move_the_momentum_encoder(skipped):
    model, optimizer = mock.Mock(), SimpleNamespace(step_was_skipped=skipped)
    Steps(None, model).on_optimizer_step(None, None, None, optimizer=optimizer)
    assert model.after_step.called is not skipped


def test_only_the_first_shapes_are_captured_and_the_others_are_computed(tiny_bert, monkeypatch):
    monkeypatch.setattr(graph, "_MOST", 1)
    model = build_model("simcse", tiny_bert, packed=False)
    step = GraphedStep(model.train(False), lambda: torch.autocast("cpu", enabled=False))
    for lengths in ([9, 4], [7, 3, 5], [6, 2], [9, 4]):
        batch = make_batch("simcse", tiny_bert, mask_of(lengths))
        taken = step(batch, fast.shares_of(batch))
        gradients = [parameter.grad for parameter in step.trained]
        assert len(step.captured) == 1
        loss = model(**batch).loss
        expected = torch.autograd.grad(loss, step.trained, allow_unused=True)
        torch.testing.assert_close(taken.loss, loss.detach())
        for ours, theirs in zip(gradients, expected, strict=True):
            torch.testing.assert_close(ours, theirs)
