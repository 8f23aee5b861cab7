"""Parts `whole`, `safe` and `true`: the loop with its loader, encoding, kills, and training on real text."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import BertModel, TrainerCallback

from bench import pair
from bench.cases import Case, Materials
from bench.gpu_fast import peak_mb
from bench.timing import Work
from common.files import ROOT, sha256
from eval.encode import Encode
from models.encoder import SentenceEncoder
from training.curves import read_log

STSB_DEV, MANY = 3000, 20_000  # sentences: of STS-B dev, and of a larger encoding
WORKERS = 4
SIZES = {"bert-base": {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}}
SEEDS = (0, 1)
TRUE = {
    "simcse": "simcse-mini",
    "infocse that reads the vector": "infocse-read-mini",
}  # configurations
LOOPS = [("padded", False, False), ("packed", True, False), ("packed, graph", True, True)]


def whole(args, device: torch.device) -> Iterator[Work]:
    """A step in the Trainer with and without worker processes, and encoding."""
    with tempfile.TemporaryDirectory() as folder:
        layers = pair.config_of(args.model).num_hidden_layers
        materials = Materials(
            Path(folder), layers, args.batch, args.length, ("bert",), **SIZES.get(args.model, {})
        )
        for workers in (0, WORKERS):
            for path, packed, graph in LOOPS:
                flags = {"dataloader_num_workers": workers, "cuda_graph": graph}
                row = {"name": "simcse step in the Trainer", "path": path, "workers": workers}
                yield row, partial(loop, materials, packed, args, device, flags)
    for count in (STSB_DEV, MANY) if device.type == "cuda" else (20, 40):
        for packed in (False, True):
            row = {"name": f"encoding {count} sentences", "path": "packed" if packed else "padded"}
            yield row, partial(encoding, args.model, count, packed, device)


class Clock(TrainerCallback):
    """Times of the ends of steps, when the device has finished."""

    def __init__(self, device: torch.device, steps: tuple[int, ...]) -> None:
        self.device, self.steps, self.times = device, steps, []

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step in self.steps:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            self.times.append(time.perf_counter())


def loop(materials: Materials, packed: bool, args, device: torch.device, flags: dict) -> dict:
    """Milliseconds of a step in the Trainer, with the collator and its workers, after a quarter of the steps."""
    steps = max(4, args.steps)
    flags = flags | {"max_steps": steps, "save_steps": 10 * steps, "eval_steps": 10 * steps}
    flags |= {"use_cpu": device.type == "cpu", "projection": "linear_tanh"}
    trainer = materials.trainer(Case("simcse", "bert", packed, "bf16"), **flags)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    clock = Clock(device, (steps // 4, steps - 1))
    trainer.add_callback(clock)
    trainer.train()
    ms = 1000 * (clock.times[1] - clock.times[0]) / (steps - 1 - steps // 4)
    return {"ms": round(ms, 2), "memory_mb": peak_mb(device)}


def encoding(model: str, count: int, packed: bool, device: torch.device) -> dict:
    """Seconds for generated sentences with realistic lengths, the second time."""
    config = pair.config_of(model)
    backbone = BertModel(config, add_pooling_layer=False)
    encoder = SentenceEncoder(backbone, "cls_before_pooler", None, 512, packed=packed).eval()
    encode = Encode(encoder.to(device), pair.tokenizer_of(pair.WORDS, config.vocab_size), bf16=True)
    texts = pair.sentences(count)
    encode(texts[:200])
    start = time.perf_counter()
    encode(texts)
    return {"seconds": round(time.perf_counter() - start, 2)}


def safe(args, device: torch.device) -> Iterator[Work]:
    """Runs of the real script that are killed, asked to stop, or short of memory; those without a shortage at once."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(5) as pool:
        runs = Runs(Path(folder), args, device)
        try:
            whole = {
                graph: pool.submit(runs.run, f"whole {graph}", graph) for graph in (False, True)
            }
            cases = [(signal.SIGKILL, False), (signal.SIGKILL, True), (signal.SIGTERM, False)]
            stopped = [
                pool.submit(runs.run, f"{number.name} {graph}", graph, number)
                for number, graph in cases
            ]
            for (number, graph), run in zip(cases, stopped, strict=True):
                row = {
                    "name": f"resume after {number.name}",
                    "path": "graph" if graph else "no graph",
                }
                yield row, partial(runs.resumed, whole[graph], run, number, graph)
            if device.type == "cuda":
                yield {"name": "out of memory"}, runs.without_memory
        finally:
            runs.over.set()


class Runs:
    """SimCSE by the real script, from a model with random weights, on generated text.

    Attributes:
        over: ends all processes when it is set.
    """

    def __init__(self, folder: Path, args, device: torch.device) -> None:
        self.folder, self.args, self.device, self.over = folder, args, device, threading.Event()
        self.steps = max(4, args.steps // 4)
        config = pair.config_of(args.model)
        torch.manual_seed(0)
        BertModel(config, add_pooling_layer=False).save_pretrained(folder / "initial")
        pair.tokenizer_of(pair.WORDS, config.vocab_size).save_pretrained(folder / "initial")
        self.text = pair.sentences((self.steps + 1) * args.batch)
        (folder / "text.txt").write_text("\n".join(self.text) + "\n", encoding="utf-8")

    def resumed(self, whole: Future, stopped: Future, number: signal.Signals, graph: bool) -> dict:
        """Whether a run that a signal ends at its first checkpoint and that is resumed ends with the same weights."""
        expected, ended = sha256(whole.result().result()), stopped.result()
        if ended.code != (-signal.SIGKILL if number == signal.SIGKILL else 75):
            raise RuntimeError(f"exit code {ended.code} after {number.name}: {ended.log[-250:]}")
        equal = expected == sha256(self.run(ended.output.name, graph).result())
        return {"steps": self.steps, "exit_code": ended.code, "bit_for_bit": equal}

    def without_memory(self) -> dict:
        """The exit code and the last line of a run whose batch is the whole text, ten times."""
        (self.folder / "text.txt").write_text("\n".join(10 * self.text) + "\n", encoding="utf-8")
        ended = self.run("large", False, per_device_train_batch_size=10 * len(self.text))
        return {"exit_code": ended.code, "last_line": ended.log.strip().splitlines()[-1][:300]}

    def run(
        self, name: str, graph: bool, number: signal.Signals | None = None, **more: object
    ) -> Ended:
        """Run the script; with a signal, send it at the first checkpoint."""
        every, output = max(1, self.steps // 3), self.folder / name
        flags = {
            "method": "simcse",
            "model_name_or_path": self.folder / "initial",
            "train_file": self.folder / "text.txt",
            "cache_dir": self.folder / f"cache {name}",
            "output_dir": output,
            "max_steps": self.steps,
            "max_length": self.args.length,
            "per_device_train_batch_size": self.args.batch,
            "save_steps": every,
            "save_total_limit": 1,
            "eval_steps": self.steps,
            "dev": "none",
            "test_tasks": "none",
            "bf16": "true",
            "report_to": "none",
            "use_cpu": self.device.type == "cpu",
            "cuda_graph": graph,
            **more,
        }
        until, log = output / f"checkpoint-{every}", output.with_name(f"{name}.log")
        streams = {"stdout": subprocess.DEVNULL, "stderr": log.open("w")}
        with streams["stderr"], launched(flags, self.device, **streams) as child:
            while child.poll() is None and not self.over.wait(0.02):
                if number and until.is_dir():
                    os.killpg(child.pid, number)
                    number = None
            if child.poll() is None:  # the time of this part has ended
                os.killpg(child.pid, signal.SIGKILL)
        return Ended(child.returncode, log.read_text(), output)


class Ended(NamedTuple):
    """How a run of the script ended."""

    code: int
    log: str
    output: Path

    def result(self) -> Path:
        """The path of its weights."""
        if self.code:
            raise RuntimeError(f"exit code {self.code}: {self.log[-250:]}")
        return self.output / "model.safetensors"


def launched(flags: dict, device: torch.device, **streams) -> subprocess.Popen:
    """A process of the script; on a CPU with one thread, since several run at the same time."""
    command = [
        sys.executable,
        "run_unsup.py",
        *(f"--{name}={value}" for name, value in flags.items()),
    ]
    environment = os.environ | ({"OMP_NUM_THREADS": "1"} if device.type == "cpu" else {})
    return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **streams)


def true(args, device: torch.device) -> Iterator[Work]:
    """SimCSE and InfoCSE on real text, all runs at the same time; STS-B dev at every evaluation."""
    if not (args.weights and args.text and args.data_dir):
        return
    with tempfile.TemporaryDirectory() as folder:
        started = {}
        try:
            for name, config in TRUE.items():
                for seed in SEEDS:
                    started[name, seed] = start(
                        args, device, config, Path(folder) / f"{config}-{seed}", seed
                    )
            for (name, seed), (child, output) in started.items():
                yield (
                    {"name": name, "seed": seed, "steps": args.true_steps},
                    partial(scores, child, output),
                )
        finally:
            for child, _ in started.values():
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)


def start(
    args, device: torch.device, config: str, output: Path, seed: int
) -> tuple[subprocess.Popen, Path]:
    """A run of the script, and its folder."""
    flags = {
        "config": ROOT / "configs" / f"{config}.yaml",
        "model_name_or_path": args.weights,
        "train_file": args.text,
        "data_dir": args.data_dir,
        "cache_dir": output.parent / f"cache-{output.name}",
        "output_dir": output,
        "max_steps": args.true_steps,
        "eval_steps": max(1, min(125, args.true_steps // 2)),
        "seed": seed,
        "test_tasks": "none",
        "bf16": "true",
        "use_cpu": device.type == "cpu",
        "cuda_graph": True,
        "report_to": "none",
    }
    with output.with_name(f"{output.name}.log").open("w") as log:
        return launched(flags, device, stdout=subprocess.DEVNULL, stderr=log), output


def scores(child: subprocess.Popen, output: Path) -> dict:
    """Best and last STS-B dev score of a run, and all of them."""
    if child.wait():
        raise RuntimeError(
            f"exit code {child.returncode}: "
            f"{output.with_name(output.name + '.log').read_text()[-250:]}"
        )
    lines = read_log(output)
    curve = [round(line["eval_stsb_spearman"], 2) for line in lines if "eval_stsb_spearman" in line]
    return {"best_dev": max(curve), "last_dev": curve[-1], "dev": curve}
