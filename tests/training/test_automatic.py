"""`auto` on machines that are not this one."""

import shutil

import pytest
import torch

from common.errors import BadInput
from tests.folders import change_json
from training.automatic import Automatic

GPU, NEW, OLD = {"cuda": True}, {"amx_bf16": True}, {"avx512_bf16": False}


@pytest.mark.parametrize(
    ("machine", "given", "chosen"),
    [
        (GPU | {"bf16": True}, "--bf16=auto --use_cpu=auto", ["false", "true"]),
        (GPU | {"bf16": False}, "--bf16 auto --use_cpu auto", ["false", "false"]),
        (GPU | {"bf16": True} | OLD, "--bf16 auto --use_cpu", ["true", "false"]),
        (GPU | {"bf16": True} | OLD, "--bf16 auto --use_cpu=True", ["True", "false"]),
        (GPU | {"bf16": True} | OLD, "--bf16 auto --use_cpu=banana", ["banana", "true"]),
        (GPU | {"bf16": True} | OLD, "--bf16 auto --use_cpu=no", ["no", "true"]),
        (NEW, "--use_cpu=auto --bf16=auto", ["true", "true"]),
        (OLD, "--use_cpu=auto --bf16=auto", ["true", "false"]),
        (NEW, "--bf16=auto --use_cpu=false", ["false", "false"]),
        (OLD, "--bf16=auto --use_cpu=auto --bf16", ["true", "true"]),
    ],
)
def test_device_and_precision_are_the_machine_s(machine, given, chosen, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: machine.get("cuda", False))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: machine["bf16"])
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: machine)
    automatic = Automatic()
    assert automatic(["--seed=1", *given.split()]) == ["--seed=1", *map("--{}={}".format, ("use_cpu", "bf16"), chosen)]
    assert ("bf16" in automatic.choices) == (given.count("--bf16") == 1) and ", by auto" in str(automatic)


def test_the_layer_is_that_of_stage_one_or_half_of_the_model_s(tiny_bert, tmp_path):
    for name, change, layer in (("plain", {}, 2), ("trained", {"skip_from": 1}, 1)):
        folder = shutil.copytree(tiny_bert, tmp_path / name)
        change_json(folder / "config.json", **change)
        words = Automatic()([f"--model_name_or_path={folder}", "--skip_from=auto"])
        assert words == [f"--model_name_or_path={folder}", f"--skip_from={layer}"]

    with pytest.raises(BadInput, match="--skip_from auto: depends on the model"):
        Automatic()(["--skip_from=auto"])


def test_without_the_word_nothing_changes():
    words = ["--bf16", "--seed", "3", "--skip_from=4", "--seed", "5"]
    assert Automatic()(words) == words
