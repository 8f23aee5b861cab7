"""Disks, numbers that are not finite, and signals."""

import errno
import os
import re
import shutil
import signal
import time

import pytest
import torch
from torch import nn

from common import signals
from common.errors import StorageError, storage_errors
from common.signals import SIGNALS, Stopping
from training import faults


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "x", "/runs/log.jsonl"), "/runs/log.jsonl: No space left"),
        (OSError(errno.EDQUOT, "x"), "No space left: the disk quota"),
        (OSError(errno.EROFS, "x"), "read-only"),
        (Exception("I/O error: File too large (os error 27)"), "ulimit -f"),
        (Exception("I/O error: No space left on device (os error 28)"), "No space left"),
        (shutil.Error([("best/a", "x/a", "[Errno 30] Read-only file system")]), "read-only"),
        (RuntimeError("[enforce fail at inline_container.cc:672] . x"), "written completely"),
        (RuntimeError("shapes"), None),
        (FileNotFoundError(errno.ENOENT, "x"), None),
        (Exception("No such file (os error 2)"), None),
    ],
)
def test_a_failing_disk_is_reported_in_plain_words_and_other_errors_pass(tmp_path, error, words):
    expected = StorageError if words else type(error)
    with pytest.raises(expected, match=words and re.escape(words)) as caught:
        with storage_errors(tmp_path):
            raise error
    assert "\n" not in str(caught.value) and (words or caught.value is error)


def test_weights_and_optimizer_state_are_checked():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    assert faults.not_finite(model, optimizer) is None
    for tensor, name in ((model[0].bias, "0.bias"), (model[1].running_var, "1.running_var")):
        kept = tensor.detach().clone()
        tensor.data[0] = float("inf")
        assert faults.not_finite(model) == name
        tensor.data.copy_(kept)
    optimizer.state[model[0].weight]["exp_avg_sq"][0, 0] = float("nan")
    assert faults.not_finite(model, optimizer) == "exp_avg_sq of optimizer state 0"


@pytest.fixture
def answered():
    """All signals as in a terminal, also where the tests run under nohup."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_only_a_signal_that_comes_later_ends_the_process_at_once(answered, monkeypatch):
    ended = []
    monkeypatch.setattr(signals.os, "_exit", ended.append)
    asked = Stopping()
    with asked.handled(), asked.held():
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        assert (asked.name, ended) == ("SIGTERM", [])
        monkeypatch.setattr(signals, "ONE_REQUEST", 0.0)
        time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)
        assert (asked.name, ended) == ("SIGTERM", [128 + signal.SIGINT])
