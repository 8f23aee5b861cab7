"""Two training steps of every method give the weights that they gave before the house was rebuilt.

For the time of the rebuild only. `UNCHANGED_RECORD=1 pytest tests/cli/test_unchanged.py` writes the hashes anew.
"""

import hashlib
import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import set_seed

import run_pretrain_aux
import run_sup
import run_unsup

HASHES = Path(__file__).with_name("unchanged.json")
SHORT = {"max_steps": 2, "save_steps": 2, "eval_steps": 2}
METHODS = """simcse infocse s_simcse consert moco esimcse diffcse infocse_rtd simcse_mlm mirror_bert ct is_bert sg_opt
    nli""".split()
CASES = {name: (name, {}) for name in METHODS} | {
    "simcse padded": ("simcse", {"packed": "false"}),
    "infocse padded": ("infocse", {"packed": "false"}),
    "infocse top": ("infocse", {"aux_init": "encoder_top", "aux_views": "first", "mask_recipe": "mask"}),
    "diffcse padded": ("diffcse", {"packed": "false"}),
    "nli padded": ("nli", {"packed": "false"}),
    "s_simcse operations": ("s_simcse", {"per_operation": "true", "per_sentence": "true"}),
    "simcse chunks": ("simcse", {"chunk_size": 3}),
    "infocse chunks": ("infocse", {"chunk_size": 3}),
    "simcse bf16": ("simcse", {"bf16": "true"}),
    "infocse bf16": ("infocse", {"bf16": "true"}),
    "simcse avg": ("simcse", {"pooling": "avg", "projection": "none"}),
    "simcse kept head": ("simcse", {"pooling": "cls"}),
}
AUX = {
    "published": {},
    "padded": {"packed": "false"},
    "clean": {"aux_cls": "clean", "aux_mask_rate": 0.5, "head_init": "encoder_top", "bow_weight": 0.1},
    "plain": {"head_layers": 0},
    "bf16": {"bf16": "true"},
}


def hashed(folder):
    """sha256 of every tensor of the run's last checkpoint, in the order of their names."""
    digest = hashlib.sha256()
    for name, value in sorted(load_file(folder / "checkpoint-2" / "model.safetensors").items()):
        digest.update(name.encode() + value.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def check(name, found):
    known = json.loads(HASHES.read_text()) if HASHES.is_file() else {}
    if os.environ.get("UNCHANGED_RECORD"):
        HASHES.write_text(json.dumps(known | {name: found}, indent=1, sort_keys=True) + "\n")
    else:
        assert found == known[name]


@pytest.mark.parametrize("name", CASES)
def test_two_steps_of_a_method(unsup, tmp_path, name):
    method, flags = CASES[name]
    set_seed(0)
    (run_sup if method == "nli" else run_unsup).main(unsup("run", method=method, **SHORT, **flags))
    check(name, hashed(tmp_path / "run"))


@pytest.mark.parametrize("name", AUX)
def test_two_steps_of_stage_one(aux, tmp_path, name):
    set_seed(0)
    run_pretrain_aux.main(aux("run", **SHORT, **AUX[name]))
    check(f"aux {name}", hashed(tmp_path / "run"))
