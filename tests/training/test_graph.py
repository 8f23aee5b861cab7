"""A run with --cuda_graph on a CPU, where nothing is captured: the same steps as without."""

import pytest
import torch
from safetensors.torch import load_file

import run_pretrain_aux
import run_unsup
from bench.cases import TINY, Materials
from common.errors import BadInput
from training.curves import read_log


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("graph")
    Materials(made, TINY | {"initializer_range": 0.3}, 4, 16)
    return made


def trained(folder, script, name, **flags):
    given = {"model_name_or_path": folder / "bert", "train_file": folder / "text"}
    given |= {"cache_dir": folder / "cache", "output_dir": folder / name, "use_cpu": "true"}
    given |= {"max_steps": 3, "save_steps": 2, "max_length": 16, "per_device_train_batch_size": 4}
    given |= {"packed": "false", "report_to": "none", **flags}
    script.main([f"--{key}={value}" for key, value in given.items()])
    return load_file(folder / name / "model.safetensors")


UNSCORED = {"dev": "none", "test_tasks": "none"}
INFOCSE = {"method": "infocse", "aux_init": "random", "skip_from": 1, "max_grad_norm": 0.1}
STAGE_ONE = {"skip_from": 1, "max_grad_norm": -1}  # which clips nothing


@pytest.mark.parametrize(
    ("script", "flags"), [(run_unsup, INFOCSE | UNSCORED), (run_pretrain_aux, STAGE_ONE)]
)
def test_its_steps_are_those_of_a_plain_run(folder, script, flags):
    """Weights, and the gradient norms before they are clipped."""
    name, flags = script.__name__, flags | {"logging_steps": 1}
    plain = trained(folder, script, f"{name}-plain", **flags)
    graphed = trained(folder, script, f"{name}-graph", cuda_graph="true", **flags)
    logs = [read_log(folder / f"{name}-{kind}") for kind in ("plain", "graph")]
    norms, same = ([line["grad_norm"] for line in log if "grad_norm" in line] for log in logs)
    assert norms == pytest.approx(same, rel=1e-4) and min(norms) > 0.2
    initial = load_file(folder / "bert" / "model.safetensors")
    for key, value in plain.items():
        torch.testing.assert_close(graphed[key], value, rtol=1e-5, atol=1e-7)
        before = initial.get(key, initial.get(f"bert.{key}"))
        assert key.endswith("position_ids") or not torch.equal(graphed[key], before), key


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"method": "moco"}, "its queue grows"),
        ({"method": "simcse", "gradient_accumulation_steps": 2}, "it needs one"),
    ],
)
def test_what_a_graph_cannot_hold_is_refused(folder, flags, said):
    with pytest.raises(BadInput, match=f"--cuda_graph: not supported here; {said}"):
        trained(folder, run_unsup, "refused", cuda_graph="true", **UNSCORED, **flags)
