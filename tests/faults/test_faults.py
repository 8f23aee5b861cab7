"""Kills, signals, full disks and broken numbers, each on a real run."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from common.signals import SIGNALS, outlast_signals
from tests.faults.forked import until
from tests.faults.harness import FORKED, check_at_rest, last_logged, newest_step, weights
from tests.sources import ROOT

# Of the faults at random moments; `make faults` takes more.
SEEDS = range(int(os.environ.get("FAULT_SEEDS", "1")))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_killed_while_it_writes_ends_with_the_same_weights(server, reference, seed):
    """Twice, while something is opened, renamed, made or removed."""
    rng, output, before = random.Random(seed), f"killed-{seed}", 0
    for _ in range(2):
        fault = {"kill": rng.randint(2, server.events("reference") // 2)}
        assert server.run(output, fault) == -signal.SIGKILL
        check_at_rest(server.folder / output)
        step = newest_step(server.folder / output)
        assert step >= before, "a checkpoint was lost"
        before = step
    server.finish(output, reference)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_run_killed_at_any_moment_ends_with_the_same_weights(server, reference, seed):
    run = server.start(f"random-{seed}")
    until((server.folder / f"random-{seed}" / "checkpoint-3").exists)
    time.sleep(random.Random(seed).uniform(0, 0.3))
    run.send_signal(signal.SIGKILL)
    assert run.wait() in (-signal.SIGKILL, 0)
    server.finish(f"random-{seed}", reference)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stopped_run_saves_its_step_and_goes_on_from_there(server, reference, seed):
    """At a share of what is written that meets evaluations and saves."""
    output, where = f"stopped-{seed}", random.Random(seed).uniform(0.3, 0.5)
    code = server.run(output, {"stop": int(where * server.events("reference"))})
    said = server.said(output)
    assert code == 75, said
    step = newest_step(server.folder / output)
    assert 0 < step < 8
    assert f"stopped by SIGTERM after step {step}; repeat the command to resume" in said
    assert "Traceback" not in said
    best = server.folder / output / "best"
    # As if killed between the two renames of a replacement.
    best.rename(best.with_name(".best.replaced"))
    server.finish(output, reference)
    assert f"resuming from {server.folder / output}/checkpoint-{step}" in server.said(output)


LONG = {"max_steps": 2000, "eval_steps": 2000, "save_steps": 2000}


def test_a_signal_to_the_whole_job_spares_the_data_workers_until_the_step_ends(server):
    run = server.start("workers", **LONG, dataloader_num_workers=2)
    until(lambda: last_logged(server.folder / "workers"))
    workers = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    assert len(workers) == 2
    for process in (*map(int, workers), run.pid):
        os.kill(process, signal.SIGTERM)
    assert run.wait() == 75, server.said("workers")
    assert newest_step(server.folder / "workers") > 0 and "Traceback" not in server.said("workers")
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


def _work(ready):
    outlast_signals(0)
    ready.set()
    time.sleep(60)


def test_a_data_worker_ends_by_a_signal_of_its_parent_alone():
    """A run that fails sends it SIGTERM and waits for it."""
    ready = FORKED.Event()
    worker = FORKED.Process(target=_work, args=(ready,), daemon=True)
    worker.start()
    assert ready.wait(60)
    for number in SIGNALS:
        subprocess.run(["kill", f"-{int(number)}", str(worker.pid)], check=True)
    worker.join(0.1)
    assert worker.is_alive()
    worker.terminate()
    worker.join(10)
    code = worker.exitcode
    worker.kill()
    assert code == 128 + signal.SIGTERM


def test_a_disk_that_fails_leaves_the_older_checkpoint(server, reference):
    code = server.run("full", {"full": int(0.75 * server.events("reference"))})
    said = server.said("full")
    assert code == 4 and "No space left" in said and "Traceback" not in said, said
    assert newest_step(server.folder / "full") >= 3
    server.finish("full", reference)


def test_a_write_that_fails_inside_a_library_leaves_no_half_checkpoint(server, reference):
    """optimizer.pt is twice as large as the weights: best/ fits, a checkpoint does not."""
    size = (server.folder / "reference" / "checkpoint-6" / "optimizer.pt").stat().st_size
    assert server.run("limit", {"limit": size - 1000}) == 4, server.said("limit")
    assert not list((server.folder / "limit").glob("*checkpoint*"))
    assert (server.folder / "limit" / "best").is_dir()
    server.finish("limit", reference)


NOT_FINITE = [("nan_loss", 5, 1, "found at step 5: contrastive nan")]
NOT_FINITE += [("nan_gradient", 5, 1, "found at step 5: gradient norm nan")]
NOT_FINITE += [("nan_weight", 4, 1, "is not finite after step 4")]
# Its norm overflows, so that the step's gradients are clipped to zero and every weight is finite.
NOT_FINITE += [("large_gradient", 5, 100, "not finite after step 4, found at step 6: gradient no")]


@pytest.mark.parametrize(("fault", "step", "logging_steps", "said"), NOT_FINITE)
def test_non_finite_numbers_stop_a_run_and_are_not_saved(server, fault, step, logging_steps, said):
    code = server.run(fault, {fault: step}, logging_steps=logging_steps)
    assert code == 3 and said in server.said(fault), server.said(fault)
    assert newest_step(server.folder / fault) == 3
    check_at_rest(server.folder / fault)


def test_the_second_of_two_commands_is_refused_with_the_first_ones_pid(server, reference):
    first = server.start("twice")
    until((server.folder / "twice" / "log.jsonl").exists)
    first.send_signal(signal.SIGSTOP)
    code = server.run("twice")
    first.send_signal(signal.SIGCONT)
    assert code == 5
    assert f"in use by another command (pid {first.pid})" in server.said("twice")
    assert first.wait() == 0
    assert weights(server.folder / "twice") == reference


def test_a_fresh_process_elsewhere_gets_the_same_weights(server, reference, tmp_path):
    """Other folder, hash seed, locale and time zone."""
    changes = {"PYTHONHASHSEED": "77", "LC_ALL": "C", "TZ": "Asia/Tokyo", "OMP_NUM_THREADS": "1"}
    environment = os.environ | changes
    command = [sys.executable, str(ROOT / "run_unsup.py"), *server.argv(tmp_path / "elsewhere")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert weights(tmp_path / "elsewhere") == reference


def test_a_run_resumed_after_its_last_step_only_finishes(server, reference):
    """Killed while the result is written: the Trainer itself would train one more step."""
    assert server.run("end", {"kill": server.events("reference") - 3}) == -signal.SIGKILL
    assert newest_step(server.folder / "end") == 8
    server.finish("end", reference)
    assert newest_step(server.folder / "end") == 8
