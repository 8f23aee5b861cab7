"""Recomputed layers, and how often the initial model is read."""

from unittest.mock import Mock, call

import pytest
import torch

import run_unsup
from models.folder import weights_of
from tests import methods

LENGTHS = [6, 9] * 3
AGAIN = [(case, True) for case in ("simcse", "infocse", "tsdae", "nli, adversarial", "stage 1")]
AGAIN += [(case, False) for case in ("infocse, no detach", "consert", "ct", "stage 1")]


@pytest.mark.parametrize(("case", "packed"), AGAIN)
def test_recomputed_layers_have_the_same_gradients(tiny_bert, case, packed):
    """With dropout; `--gradient_checkpointing` of the Trainer."""
    results = []
    for again in (False, True):
        if case == "stage 1":
            model = methods.stage_one(tiny_bert, packed, dropout=0.1)
            made = methods.stage_one_batch(tiny_bert, LENGTHS)
            layers = model.lm.bert.encoder.layer
        else:
            model = methods.build_model(case, tiny_bert, packed, dropout=0.1)
            made = methods.make_batch(case, tiny_bert, methods.mask_of(LENGTHS))
            layers = model.encoder.backbone.encoder.layer
        computed = []
        layers[1].attention.register_forward_hook(lambda *_, of=computed: of.append(1))
        if again:
            model.gradient_checkpointing_enable()
        torch.manual_seed(3)
        model(**made).loss.backward()
        results.append(([p.grad for p in model.parameters()], len(computed)))
    (plain, once), (other, twice) = results
    assert twice > once
    for a, b in zip(plain, other, strict=True):
        assert (a is None and b is None) or torch.equal(a, b)


@pytest.mark.parametrize("method", ["simcse", "infocse", "simcse_mlm", "tsdae"])
def test_the_initial_model_is_loaded_once(tiny_bert, short_run, monkeypatch, method):
    """Copies of its layers and of its output head are taken from memory."""
    read, path = Mock(wraps=weights_of), str(tiny_bert)
    monkeypatch.setattr("models.loading.weights_of", read)
    flags = {"skip_from": 2, "aux_init": "encoder_top"} if method == "infocse" else {}
    run_unsup.main(short_run(path, method=method, bow_weight=0.1, **flags))
    assert read.call_args_list.count(call(path)) == 1
