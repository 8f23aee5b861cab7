"""Runs with --chunk_size: the same training as without at dropout 0, and what is said about accumulation."""

import json
import logging

import pytest

import run_unsup

QUIET = {"optim": "sgd", "learning_rate": "0.05", "dropout": 0, "projection": "linear_tanh", "max_steps": 4}


@pytest.mark.parametrize("method", ["infocse", "esimcse", "diffcse"])
def test_a_run_in_chunks_logs_what_a_plain_run_logs(unsup, tmp_path, method):
    flags = QUIET | ({"generator_dropout": "false"} if method == "diffcse" else {})
    logs = []
    for name, size in (("plain", 0), ("chunks", 3)):
        run_unsup.main(unsup(name, method, chunk_size=size, **flags))
        logs.append([json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()])
    for one, two in zip(*logs, strict=True):
        assert one.keys() == two.keys()
        for key in one.keys() & {"loss", "grad_norm", "contrastive", "aux_mlm", "rtd", "eval_dev_spearman"}:
            # Two nearly equal cosines of thirty may change places.
            allowed = {"abs": 1.0} if key == "eval_dev_spearman" else {"rel": 1e-3}
            assert one[key] == pytest.approx(two[key], **allowed), (key, one["step"])


def test_accumulation_is_said_to_add_no_negatives(unsup, caplog):
    short = {"method": "simcse", "max_steps": 1, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}
    with caplog.at_level(logging.WARNING):
        run_unsup.main(unsup("plain", **short))
        run_unsup.main(unsup("chunks", chunk_size=2, **short))
    said = [record.message for record in caplog.records if "negatives" in record.message]
    assert len(said) == 2 and all("--gradient_accumulation_steps 2" in one and "--chunk_size" in one for one in said)
