"""A GPU: are steps right, how long do they take, and what do runs survive.

    python -m bench gpu --output gpu.json

Parts, together about twelve minutes of an H200 by estimate; these have not run on one yet:
    right    loss and gradients of a step of every method against the same step on the CPU
    step     milliseconds of a training step, by method and path, alone and in the Trainer
    run      whether runs that are killed and resumed end with the weights of one that was not, also
             with deterministic kernels; a batch too large for the memory; four runs at once

A row is written as soon as it is known; what fails is a row with the reason. --parts measures some
again and keeps the other rows of the file.
"""

from __future__ import annotations

import argparse
import copy
import gc
import logging
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

import infocse
from bench.cases import MODELS, STAGE_ONE, TINY, Case, Materials
from bench.timing import step_ms
from common.errors import BadInput, brief
from common.files import ROOT, read_rows, sha256
from eval.scores import write_rows
from models import fast
from training.config_files import words_of
from training.curves import read_log
from training.graph import GraphedStep
from training.trainer import EmbeddingTrainer

logger = logging.getLogger(__name__)
DEVICE = torch.device("cuda")
PARTS = ("right", "step", "run")
PATHS = ["padded", "packed", "padded, graph", "packed, graph", "packed, graph, compiled"]
LIMITS = {"float32": 1e-3, "float32, graph": 1e-3, "bf16": 0.15}  # errors of a right step
MODEL, BATCH, LENGTH = MODELS["bert-base"], 64, 32  # of a step
BATCHES, WARM, TIMED = 8, 10, 50  # different batches; steps before and during a measurement
WINDOW = 10  # steps in the Trainer between two looks at the clock
KILLED, LONG = 48, 500  # steps of the runs that are killed, and of those at once
STOPPED = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 75}  # exit codes
LARGE = 16_384  # sentences that do not fit into a GPU's memory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))


def rows(args: argparse.Namespace) -> list[dict]:
    """The rows of the chosen parts, and those of --output that belong to other parts."""
    if DEVICE.type == "cuda" and not torch.cuda.is_available():
        raise BadInput("torch sees no CUDA GPU")
    name = torch.cuda.get_device_name(DEVICE) if DEVICE.type == "cuda" else "CPU"
    results: list[dict] = []
    if args.output:
        before = read_rows(Path(args.output), "rows of python -m bench")
        results = [row for row in before if row.get("part") not in args.parts]
    parts = {"right": right, "step": steps, "run": runs}
    for part in args.parts:
        with tempfile.TemporaryDirectory() as folder:
            for row in parts[part](Path(folder)):
                logger.info("%s", row)
                results.append({"device": name, "part": part, **row})
                if args.output:
                    write_rows(args.output, results)
    return results


def attempt(row: dict[str, Any], work: Callable[[], dict]) -> dict[str, Any]:
    """The row with what the work measures, or with the reason why it failed."""
    try:
        return row | work()
    except Exception as error:  # a failed row must not lose the others
        return row | {"failed": f"{type(error).__name__}: {brief(error)}"}
    finally:
        gc.collect()  # otherwise its memory would count in the next peak
        if DEVICE.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(DEVICE)


def right(folder: Path) -> Iterator[dict]:
    """Every method and stage 1, padded and packed, with a tiny model.

    Dropout is 0, so that nothing but rounding differs.
    """
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    sizes = TINY | dropout | {"initializer_range": 0.1}
    materials = Materials(folder, sizes, batch=8, length=32)
    for name in (*infocse.methods(), STAGE_ONE):
        for path in ("padded", "packed"):
            model, inputs = sample(materials, name, path)
            expected = gradients(model, inputs, torch.device("cpu"), "float32")
            replayed = not any(part.not_replayed for part in getattr(model, "objectives", []))
            for precision in LIMITS:
                if replayed or "graph" not in precision:
                    row = {"name": name, "path": path, "precision": precision}
                    yield attempt(row, partial(compared, model, inputs, precision, expected))


def sample(materials: Materials, name: str, path: str) -> tuple[nn.Module, dict]:
    """The model of a method and a batch whose second view has another sentence's tokens.

    Equal views have hardly a gradient.
    """
    dropout = {} if name == STAGE_ONE else {"dropout": 0.0}
    case = Case(name, packed=path == "packed")
    model, collator = materials.parts(case, **dropout)
    inputs = collator([(0, row, 0) for row in range(materials.batch)])
    if "dropout_rates" in inputs:
        inputs["dropout_rates"] = torch.zeros_like(inputs["dropout_rates"])
    ids = inputs["input_ids"]
    if name != STAGE_ONE and len(ids) > 1:
        inputs["input_ids"] = torch.cat([ids[:1], ids[1:].roll(1, dims=1)])
    return model, inputs


def compared(model: nn.Module, inputs: dict, precision: str, expected: list[Tensor]) -> dict:
    """Errors relative to the norm of the CPU's values: of the loss, and of all gradients."""
    found = gradients(model, inputs, DEVICE, precision)
    errors = {
        "loss_error": error(found[:1], expected[:1]),
        "gradient_error": error(found[1:], expected[1:]),
    }
    return errors | {"right": all(value <= LIMITS[precision] for value in errors.values())}


def gradients(model: nn.Module, inputs: dict, device: torch.device, precision: str) -> list[Tensor]:
    """The loss and the gradients of a step on a device, on the CPU in float32."""
    model = copy.deepcopy(model).to(device).train()
    shares, inputs = fast.shares_of(inputs), send_to_device(inputs, device)
    torch.manual_seed(0)
    if "graph" in precision:
        step = GraphedStep(model, nullcontext)
        others = {**inputs, "input_ids": inputs["input_ids"].clone().fill_(5)}
        step(others, shares)  # captures the graph
        torch.manual_seed(0)
        output: Any = step(inputs, shares)
    else:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            output = model(**inputs)
        output.loss.backward()
    made = [output.loss]
    for weight in model.parameters():
        if weight.requires_grad:
            made.append(torch.zeros_like(weight) if weight.grad is None else weight.grad)
    return [tensor.detach().float().cpu() for tensor in made]


def error(values: list[Tensor], expected: list[Tensor]) -> float:
    """|values - expected| / |expected|, over all tensors together."""
    both = (values, expected)
    value, target = (torch.cat([part.flatten() for part in side]).double() for side in both)
    return float(f"{float((value - target).norm() / target.norm()):.2e}")


def steps(folder: Path) -> Iterator[dict]:
    """Steps alone, and in the Trainer, which SimCSE's also take with workers and in chunks."""
    materials = Materials(folder, MODEL, BATCH, LENGTH, rows=100 * BATCH)
    for name in ("infocse", "simcse", STAGE_ONE):
        for path in PATHS:
            row = {"name": name, "path": path}
            yield attempt(row, partial(alone, materials, name, path))
        row = {"name": name, "path": "packed, graph, Trainer"}
        yield attempt(row, partial(in_trainer, materials, name, row["path"]))
    chunks = {"per_device_train_batch_size": 8 * BATCH, "chunk_size": BATCH}
    for path, flags in (
        ("padded, Trainer", {}),
        ("packed, graph, Trainer, 4 workers", {"dataloader_num_workers": 4}),
        ("padded, Trainer, eight batches in chunks", chunks),
    ):
        row = {"name": "simcse", "path": path}
        yield attempt(row, partial(in_trainer, materials, "simcse", path, **flags))


def made(materials: Materials, name: str, path: str, **flags) -> EmbeddingTrainer:
    """The Trainer of a path, as the training scripts build it."""
    case = Case(name, "bert", path.startswith("packed"), "bf16")
    flags |= {} if name == STAGE_ONE else {"dev": "none"}
    flags |= {"max_steps": WARM + TIMED, "save_strategy": "no", "use_cpu": DEVICE.type == "cpu"}
    return materials.trainer(case, cuda_graph="graph" in path, **flags)


def alone(materials: Materials, name: str, path: str) -> dict:
    """Mean milliseconds of forward, backward, clipping and AdamW; peak memory."""
    trainer = made(materials, name, path)
    if "compiled" in path:
        for part in trainer.model.modules():
            if isinstance(part, GradientCheckpointingLayer):  # every layer of transformers'
                part.compile()
    model = trainer.accelerator.prepare_model(trainer.model)
    trainer.current_gradient_accumulation_steps = 1  # which only its loop sets
    optimizer, collator, batches = trainer.create_optimizer(), trainer.data_collator, []
    for number in range(BATCHES):
        keys: Any = [(0, number * BATCH + row, number) for row in range(BATCH)]
        batches.append(send_to_device(collator(keys), DEVICE))

    def take(number: int) -> None:
        trainer.training_step(model, dict(batches[number % BATCHES]))
        trainer.accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    for number in range(WARM):
        take(number)
    wait()
    start = time.perf_counter()
    for number in range(TIMED):
        take(number)
    wait()  # the host has not waited in between
    ms = 1000 * (time.perf_counter() - start) / TIMED
    memory = torch.cuda.max_memory_allocated() if DEVICE.type == "cuda" else 0
    return {"ms": round(ms, 2), "memory_mb": round(memory / 1e6)}


def wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def in_trainer(materials: Materials, name: str, path: str, **flags) -> dict:
    """Median milliseconds of a step, over windows: a graph that is captured late is in one."""
    return {"ms": round(step_ms(made(materials, name, path, **flags), WARM, WINDOW), 2)}


def runs(folder: Path) -> Iterator[dict]:
    """Runs of SimCSE by the script."""
    Materials(folder, MODEL, BATCH, LENGTH, rows=LARGE + LARGE // 50)
    flags = {
        "method": "simcse",
        "model_name_or_path": folder / "bert",
        "train_file": folder / "text",
        "cache_dir": folder / "cache",
        "per_device_train_batch_size": BATCH,
        "max_length": LENGTH,
        "max_steps": KILLED,
        "save_steps": KILLED // 3,
        "dev": "none",
    }
    for path in ("plain", "graph", "deterministic", "deterministic, graph", "graph, SIGTERM"):
        own = flags | {"cuda_graph": "graph" in path, "full_determinism": "deter" in path}
        number = signal.SIGTERM if "SIGTERM" in path else signal.SIGKILL
        row = {"name": "killed and resumed", "path": path}
        yield attempt(row, partial(resumed, own, folder / path, number))
    large = flags | {"per_device_train_batch_size": LARGE}
    row = {"name": "out of memory"}
    yield attempt(row, lambda: {"said": script(large, folder / "large", 1)})
    long = flags | {"cuda_graph": True, "max_steps": LONG, "save_steps": LONG}
    for count in (1, 4):
        row = {"name": f"{count} at once", "path": "graph"}
        yield attempt(row, partial(together, long, folder, count))


def resumed(flags: dict[str, Any], whole: Path, number: signal.Signals) -> dict:
    """Whether a run that a signal ends at its first checkpoint ends with a whole run's weights."""
    output = whole.with_name(f"{whole.name}, resumed")
    script(flags, whole)
    script(flags, output, STOPPED[number], number)
    script(flags, output)
    weights = [sha256(folder / "model.safetensors") for folder in (whole, output)]
    ms = 1000 * read_log(whole)[-1]["train_runtime"] / KILLED
    return {"ms": round(ms), "equal": weights[0] == weights[1]}


def together(flags: dict[str, Any], folder: Path, count: int) -> dict:
    """Seconds that `count` runs at once train."""
    outputs = [folder / f"{number} of {count}" for number in range(count)]
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(partial(script, flags), outputs))
    return {"seconds": max(read_log(output)[-1]["train_runtime"] for output in outputs)}


def script(
    flags: dict[str, Any], output: Path, code: int = 0, number: signal.Signals | None = None
) -> str:
    """The last words of run_unsup.py; a signal is sent at the first checkpoint.

    Raises:
        RuntimeError: another exit code.
    """
    flags = flags | {"output_dir": output, "test_tasks": "none", "bf16": True}
    flags |= {"report_to": "none", "use_cpu": DEVICE.type == "cpu"}
    words, log = words_of(flags), output.with_name(f"{output.name}.log")
    with log.open("w") as stream:
        command = [sys.executable, "run_unsup.py", *words]
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=stream)
        while number and child.poll() is None and not [*output.glob("checkpoint-*")]:
            time.sleep(0.02)
        if number:
            child.send_signal(number)
        ended = child.wait()
    said = log.read_text()[-250:]
    if ended != code:
        raise RuntimeError(f"exit code {ended}: {said}")
    return said
