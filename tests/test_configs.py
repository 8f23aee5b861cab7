"""Every configuration parses and has only what differs; the small model's goes behind it."""

import pytest
import yaml

from tests.sources import ROOT
from training.config_files import read_config
from training.methods import UNSUP, script_of
from training.settings import fill

CONFIGS = ROOT / "configs"
MINI = CONFIGS / "mini.yaml"  # goes behind another one
NAMES = sorted(path.stem for path in CONFIGS.glob("*.yaml") if path != MINI)


def test_the_small_model_s_values_go_behind_every_method_s():
    for name in (name for name in NAMES if name.endswith("bert-base")):
        config = CONFIGS / f"{name}.yaml"
        script = script_of(read_config(config).get("method"))
        values = fill(script, {"config": [config, MINI]}).values
        assert values["output_dir"] == "runs/mini" and values["max_length"] <= 64, name
        assert not values["bf16"] and values["seed"] == 42, name
        assert values["num_train_epochs"] == 2 or 100 <= values["max_steps"] <= 1000, name
    rank, moco = CONFIGS / "rankcse-bert-base.yaml", CONFIGS / "moco-bert-base.yaml"
    assert fill(UNSUP, {"config": [rank, MINI]}).method_args.teacher == ["self"]
    assert fill(UNSUP, {"config": [moco, MINI]}).method_args.queue_size == 2048


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_parses_and_has_only_what_differs_from_what_all_share(name):
    path = CONFIGS / f"{name}.yaml"
    shared = fill(UNSUP, {"method": "simcse", "use_cpu": True}).values
    settings = fill(script_of(read_config(path).get("method")), {"config": path, "bf16": False})
    if settings.method:
        settings.method.views(settings.method_args)
    values = settings.values
    assert values["output_dir"].startswith("runs/")
    common = {"seed", "eval_steps", "max_length", "per_device_train_batch_size"}
    for key in read_config(path).keys() & common:
        assert values[key] != shared[key], key
    if name.startswith("diffcse"):  # the models that DiffCSE's authors name
        assert values["generator"] in ("distilbert-base-uncased", "distilroberta-base")


ACCELERATE = sorted((CONFIGS / "accelerate").glob("*.yaml"))


@pytest.mark.parametrize("path", ACCELERATE, ids=lambda path: path.stem)
def test_accelerate_files_start_the_number_of_processes_they_say(path):
    content = yaml.safe_load(path.read_text())
    # MULTI_CPU, or use_cpu here, would silently start one process.
    assert content["distributed_type"] == ("MULTI_GPU" if content["num_processes"] > 1 else "NO")
    assert content["use_cpu"] is False
    # Or a machine with several would use all.
    assert ("gpu_ids" in content) == (content["num_processes"] == 1)
