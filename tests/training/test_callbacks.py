"""The line about time and memory: true of the steps alone, and right behind a resume."""

import io
import sys
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from training import callbacks
from training.callbacks import Pace, ResumedProgress, Steps, duration


@pytest.mark.parametrize(
    ("done", "last", "delay", "said"),
    [
        (0, 1000, 0, "next evaluation (step 125) in about 8 min, end (step 1,000) in about 66 min,"),
        (500, 1000, 0, "next evaluation (step 625) in about 8 min, end (step 1,000) in about 33 min,"),
        (900, 950, 0, "last evaluation and end (step 950) in about 3 min,"),
        (0, 40_000, 130, "next evaluation (step 250) in about 16 min, end (step 40,000) in about 44.4 h,"),
    ],
)
def test_a_start_logs_its_expected_duration_once(done, last, delay, said, monkeypatch, caplog):
    now = [0.0]
    monkeypatch.setattr(callbacks.time, "perf_counter", lambda: now[0])
    caplog.set_level("INFO")
    args = SimpleNamespace(device=torch.device("cpu"), eval_delay=delay)
    state = SimpleNamespace(global_step=done, max_steps=last, eval_steps=125, is_world_process_zero=True)
    callback = Pace()
    callback.on_train_begin(args, state, None)
    for seconds in (90.0, 4.0, 4.0, 50.0, 4.0, 4.0, 4.0):  # the first one warms up, and one evaluates
        now[0] += seconds
        state.global_step += 1
        callback.on_step_end(args, state, None)
        if state.global_step == done + 3:
            now[0] += 1000.0
            callback.on_evaluate(args, state, None)
    [line] = caplog.messages
    assert line.startswith(f"4 s per step: {said} not counting evaluations; so far at most ")
    assert line.endswith("GB of memory, including libraries")


@pytest.mark.parametrize(("seconds", "said"), [(0.2, "0 s"), (119, "119 s"), (121, "2 min"), (12_600, "3.5 h")])
def test_a_duration_is_in_its_unit(seconds, said):
    assert duration(seconds) == said


@pytest.mark.parametrize("skipped", [False, True])
def test_a_skipped_step_does_not_move_the_momentum_encoder(skipped):
    model = mock.Mock()
    Steps(None, model).on_optimizer_step(None, None, None, optimizer=SimpleNamespace(step_was_skipped=skipped))
    assert model.after_step.called is not skipped


def test_a_redirected_log_shows_each_line_when_it_is_written(monkeypatch):
    file = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(file))
    args, state = SimpleNamespace(disable_tqdm=False), SimpleNamespace(global_step=3, max_steps=6,
                                                                       is_world_process_zero=True)  # fmt: skip
    callback = ResumedProgress()
    callback.on_train_begin(args, state, None)
    callback.on_log(args, state, None, logs={"loss": 0.5})
    assert file.getvalue() == b"step 3: loss 0.5\n"
