"""The long form: hundreds of faults on real runs, each with a seed of its own; `make faults`.

    python tests/faults/long.py --case write --count 200 --output results.json

Finished cases are appended to the file and skipped when the command is given again. Ends with 1 when any case failed.

    moment    SIGKILL at a random moment, then the same command to the end
    write     SIGKILL at a random event, while something is opened, renamed, made or removed, then the same
    chain     SIGKILL twenty times, at events and moments, then the same
    stop      SIGTERM at a random moment, then the same command to the end
    event     SIGTERM at a random event, while something is opened, renamed, made or removed, then the same
    others    SIGINT, SIGHUP or SIGUSR1 at a random moment, then the same
    full      a disk that is full, read-only or limits a file, then the same command to the end
    disk      a real file system, too small or filled by another, bytes or inodes; then room and the same (as root)
    flip      one flipped bit in one file of a checkpoint
    twice     two commands in one folder at once
    numbers   a loss, a gradient or a weight that is NaN or infinite at a random step

InfoCSE's second stage is run; `--method` and `--script run_pretrain_aux.py` take another.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from transformers import BertConfig, BertForMaskedLM, set_seed  # noqa: E402

import quickstart.generate as text  # noqa: E402
from data.source import Source  # noqa: E402
from data.tokenizer import train_tokenizer  # noqa: E402
from tests.faults.harness import (  # noqa: E402
    DEFAULTS,
    STAGE_1,
    Server,
    check_at_rest,
    check_finite,
    last_logged,
    newest_step,
    weights,
)
from training.checkpoint import checkpoint_problem  # noqa: E402
from training.folder import read_run  # noqa: E402


def material(folder, script, method):
    """Flags that name a small text, a tiny model and, for stage 2, dev pairs and the method; all made here."""
    text.write(text.generate(0, 300, 40), folder)
    tokenizer = train_tokenizer(Source((folder / "sentences.txt",)), 300, folder / "vocabulary")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    words = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, "max_position_embeddings": 64}
    config = BertConfig(**sizes, **words)
    set_seed(0)
    BertForMaskedLM(config).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    flags = {"model_name_or_path": folder / "model", "train_file": folder / "sentences.txt"}
    if script == STAGE_1:
        return flags | {"skip_from": 1, "head_layers": 1, "max_length": 32}
    head = {"aux_init": "random", "skip_from": 1, "head_layers": 1} if method == "infocse" else {}
    return flags | {"dev_file": folder / "dev.tsv", "method": method} | head


@dataclass(frozen=True)
class Whole:
    """An undisturbed run: its steps, its events, how long it took, its weights."""

    steps: int
    events: int
    seconds: float
    weights: str

    @classmethod
    def of(cls, server, steps):
        """Run it twice: the first time it may have text to read."""
        for name in ("read", "whole"):
            began = time.time()
            assert server.run(f"{name}-{steps}", max_steps=steps) == 0, server.said(f"{name}-{steps}")
        seconds, name = time.time() - began, f"whole-{steps}"
        return cls(steps, server.events(name), seconds, weights(server.folder / name))


def _at_event(server, output, rng, whole, fault):
    return server.run(output, {fault: rng.randint(1, whole.events)}, max_steps=whole.steps)


def _at_moment(server, output, rng, whole, number):
    pid = server.start(output, max_steps=whole.steps)
    time.sleep(rng.uniform(0, whole.seconds))
    os.kill(pid, number)
    return server.wait(pid)


def _survive(server, output, whole, kills):
    """After each kill, no checkpoint is lost and at most `save_steps` of what was logged; then the end."""
    steps = [0]
    for kill_once in kills:
        kill_once()
        check_at_rest(server.folder / output)
        steps.append(newest_step(server.folder / output))
        assert steps[-1] >= steps[-2], "a checkpoint was lost"
        logged = last_logged(server.folder / output)
        assert logged - steps[-1] <= DEFAULTS["save_steps"], f"{logged} steps were taken, {steps[-1]} are kept"
    server.finish(output, whole.weights, max_steps=whole.steps)
    return {"kills": len(kills), "resumed_from": steps[1:]}


def moment(server, output, rng, whole):
    return _survive(server, output, whole, [lambda: _at_moment(server, output, rng, whole, signal.SIGKILL)])


def write(server, output, rng, whole):
    return _survive(server, output, whole, [lambda: _at_event(server, output, rng, whole, "kill")])


def chain(server, output, rng, whole):
    ways = [
        lambda: _at_event(server, output, rng, whole, "kill"),
        lambda: _at_moment(server, output, rng, whole, signal.SIGKILL),
    ]
    return _survive(server, output, whole, [rng.choice(ways) for _ in range(20)])


def _stopped(server, output, whole, number, code):
    # 0: it had ended; -number: before the command had begun to listen
    assert code in (75, 0, -number), f"{number.name}: ended with {code}"
    step = newest_step(server.folder / output)
    server.finish(output, whole.weights, max_steps=whole.steps)
    return {"signal": number.name, "code": code, "resumed_from": step}


def stop(server, output, rng, whole, number=signal.SIGTERM):
    return _stopped(server, output, whole, number, _at_moment(server, output, rng, whole, number))


def event(server, output, rng, whole):
    return _stopped(server, output, whole, signal.SIGTERM, _at_event(server, output, rng, whole, "stop"))


def others(server, output, rng, whole):
    return stop(server, output, rng, whole, rng.choice([signal.SIGINT, signal.SIGHUP, signal.SIGUSR1]))


def full(server, output, rng, whole):
    fault = rng.choice(["full", "readonly", "limit"])
    value = rng.randint(1, whole.events) if fault != "limit" else rng.randint(2_000, 200_000)
    code = server.run(output, {fault: value})
    assert code in (4, 0), f"{fault} {value}: ended with {code}"
    server.finish(output, whole.weights, max_steps=whole.steps)
    return {"fault": fault, "value": value, "code": code}


def _fill(root):
    """Take all the room, or all the inodes, that there are."""
    with contextlib.suppress(OSError):
        for number in range(1000):
            (root / f"filler-{number}").touch()
    with contextlib.suppress(OSError), (root / "filler-0").open("wb", buffering=0) as filler:
        while filler.write(bytes(4096)):
            pass


def disk(server, output, rng, whole):
    root, size, inodes = server.folder / output, rng.choice([100, 400, 4096, 8192]), rng.choice([30, 100, 900, 900])
    root.mkdir()
    limits = f"size={size}k,nr_inodes={inodes}"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", limits, "tmpfs", root], capture_output=True).returncode:
        return {"limits": "not run: mounting is not allowed"}
    try:
        pid = server.start(f"{output}/run")
        time.sleep(rng.uniform(0, whole.seconds))
        _fill(root)
        code = server.wait(pid)
        assert code in (4, 0), f"{limits}: ended with {code}"
        assert "Traceback" not in server.said(f"{output}/run")
        check_at_rest(root / "run")
        for filler in root.glob("filler-*"):
            filler.unlink()
        subprocess.run(["mount", "-o", "remount,size=64m,nr_inodes=10000", root], check=True)
        step = newest_step(root / "run")
        server.finish(f"{output}/run", whole.weights, max_steps=whole.steps)
    finally:
        subprocess.run(["umount", root], check=True)
    return {"limits": limits, "code": code, "resumed_from": step}


def flip(server, output, rng, whole):
    folder = server.folder / output
    shutil.copytree(server.folder / f"whole-{whole.steps}" / f"checkpoint-{whole.steps}", folder)
    path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    content, place = bytearray(path.read_bytes()), rng.randrange(8 * path.stat().st_size)
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)
    found = checkpoint_problem(folder, read_run(server.folder / f"whole-{whole.steps}")["run_id"])
    assert found is not None, f"bit {place} of {path.name} was not noticed"
    return {"file": path.name, "bit": place}


def twice(server, output, rng, whole):
    first = server.start(output)
    time.sleep(rng.uniform(0, 0.3))
    second = server.start(output)
    codes = sorted([server.wait(first), server.wait(second)])
    assert codes in ([0, 0], [0, 5]), f"ended with {codes}"
    assert codes == [0, 5] or "already finished" in server.said(output), "both at work"
    assert weights(server.folder / output) == whole.weights
    return {"codes": codes}


def numbers(server, output, rng, whole):
    fault, value = rng.choice(["nan_loss", "nan_gradient", "nan_weight"]), rng.choice(["nan", "inf"])
    step, every = rng.randint(1, 24), rng.randint(1, 5)
    code = server.run(output, {fault: step, "value": value}, max_steps=24, save_steps=every, eval_steps=every)
    assert code == 3, f"{fault} {value} at step {step}: ended with {code}"
    assert newest_step(server.folder / output) < step, "a checkpoint of the broken step"
    assert "Traceback" not in server.said(output)
    check_at_rest(server.folder / output)
    return {"fault": fault, "value": value, "step": step, "finite_files": check_finite(server.folder / output)}


# How many of each, and how long a run they befall: moments and signals hit training rather than its preparation.
CASES = {moment: (200, 40), write: (200, 8), chain: (10, 40), stop: (100, 40), event: (50, 40), others: (60, 40),
         full: (50, 8), disk: (40, 8), flip: (1000, 8), twice: (30, 8), numbers: (50, 8)}  # fmt: skip
CASES = {case.__name__: (case, *numbers) for case, numbers in CASES.items()}


def run(case, seed, server, whole):
    """One case; what it found, as one row."""
    began, output = time.time(), f"{case}-{seed}"
    row = {"case": case, "seed": seed}
    try:
        row |= CASES[case][0](server, output, random.Random(f"{case} {seed}"), whole) | {"ok": True}
    except Exception as error:
        row |= {
            "ok": False,
            "error": repr(error),
            "log": "".join(log.read_text()[-3000:] for log in server.folder.glob(f"{output}*.log")),
        }
    shutil.rmtree(server.folder / output, ignore_errors=True)
    return row | {"seconds": round(time.time() - began, 1)}


def main():
    """Every case that the output file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=[*CASES, "all"], default="all")
    parser.add_argument("--script", choices=["run_unsup.py", STAGE_1], default="run_unsup.py")
    parser.add_argument("--method", default="infocse", help="of run_unsup.py")
    parser.add_argument("--count", type=int, help="seeds of each case; hundreds unless given")
    parser.add_argument("--output", type=Path, required=True, help="JSON file, one row a case")
    args = parser.parse_args()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    rows = json.loads(args.output.read_text()) if args.output.exists() else []
    of = args.script if args.script == STAGE_1 else args.method
    done = {(row["case"], row["seed"]) for row in rows if row["of"] == of}
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder, args.script, **material(Path(folder), args.script, args.method))
        wholes = {}
        for case in CASES if args.case == "all" else [args.case]:
            _, count, steps = CASES[case]
            for seed in range(args.count or count):
                if (case, seed) not in done:
                    whole = wholes[steps] = wholes.get(steps) or Whole.of(server, steps)
                    rows.append({"of": of} | run(case, seed, server, whole))
                    args.output.write_text(json.dumps(rows) + "\n")
        server.close()
    for case in dict.fromkeys(row["case"] for row in rows):
        ours = [row for row in rows if row["case"] == case]
        sys.stdout.write(f"{case:>7}: {sum(row['ok'] for row in ours)} of {len(ours)} passed\n")
    sys.exit(not all(row["ok"] for row in rows))


if __name__ == "__main__":
    main()
