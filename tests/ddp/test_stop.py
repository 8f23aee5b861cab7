"""One of two processes gets a signal: what the other does, and that the same command resumes.
`FAULT_STOPS=20` in the environment stops the run as often, each time going on from the stop
before."""

import os
import random
import re
import signal
import time
from contextlib import nullcontext

import pytest
from safetensors.torch import load_file

from common.signals import STOPPING
from tests.ddp.launch import finish, flags, start, start_ranks
from tests.faults.forked import until
from tests.faults.harness import check_at_rest, last_logged, newest_step
from training.trainer import StopWhenAsked

STOPS = int(os.environ.get("FAULT_STOPS", "1"))


@pytest.fixture
def arguments(tiny_bert, text_file, dev_file, tmp_path):
    steps = 60 * STOPS
    files = {"model_name_or_path": tiny_bert, "train_file": text_file, "dev_file": dev_file}
    counts = {"max_steps": steps, "eval_steps": steps, "logging_steps": 1}
    counts["save_steps"] = 20 if STOPS == 1 else steps
    return flags(method="simcse", cache_dir=tmp_path / "cache", **files, **counts)


def check_end(arguments, run, whole):
    """The same command ends with the weights of an undisturbed run."""
    step = newest_step(run)
    for output in (run, whole):
        said = finish(start([*arguments, f"--output_dir={output}"]))
        assert (f"resuming from {run}/checkpoint-{step}" in said) == (output == run and step > 0)
    resumed, undisturbed = (load_file(folder / "model.safetensors") for folder in (run, whole))
    assert max((resumed[name] - undisturbed[name]).abs().max().item() for name in resumed) == 0


@pytest.mark.slow  # three starts of two processes
def test_a_signal_to_one_process_stops_both_after_the_same_step(arguments, tmp_path):
    run, rng = tmp_path / "run", random.Random(0)
    for _ in range(STOPS):
        began, both = last_logged(run), start_ranks([*arguments, f"--output_dir={run}"])
        until(lambda began=began: last_logged(run) > began)
        time.sleep(rng.uniform(0, 0.2))
        rng.choice(both).send_signal(signal.SIGTERM)
        said = [process.end() for process in both]
        assert [process.poll() for process in both] == [75, 75], said
        stops = [re.findall(r"stopped by (.*) after step ([0-9]+)", text) for text in said]
        (cause, step), (other, same) = (stop for [stop] in stops)
        assert {cause, other} == {"SIGTERM", "a signal to another process"}
        assert newest_step(run) == int(step) == int(same)
        check_at_rest(run)
    check_end(arguments, run, tmp_path / "whole")


def stop_at_the_last_step():
    """Make a signal reach rank 0 at the end of its last step, in whatever context follows."""
    before = StopWhenAsked.on_step_end

    def on_step_end(self, args, state, control, **others):
        if os.environ["RANK"] == "0" and state.global_step == state.max_steps:
            STOPPING.name = "SIGTERM"
        return before(self, args, state, control, **others)

    StopWhenAsked.on_step_end = on_step_end
    return nullcontext()


def test_a_signal_at_the_last_step_of_one_process_stops_both(arguments, tmp_path):
    words = [word for word in arguments if not word.startswith("--max_steps")]
    words += [f"--output_dir={tmp_path / 'run'}", "--max_steps=2"]
    both = start_ranks(words, around=stop_at_the_last_step)
    said = [process.end() for process in both]
    assert [process.poll() for process in both] == [75, 75], said
