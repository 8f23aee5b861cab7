"""A GPU: are steps right, how long do they take, do runs survive a kill and reach their scores.

    python -m bench gpu --output gpu.json

Parts:
    right   loss and gradients of a step of every method against the same step on the CPU
    step    milliseconds of a training step, by method and path
    kill    whether a run that was killed and resumed ends with the weights of one that was not
    run     with --weights, --text and --data_dir: STS-B dev of runs on real text

A row is written as soon as it is known; what fails is a row with the reason. --parts measures some
again and keeps the other rows of the file.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn

import infocse
from bench import pair
from bench.cases import STAGE_ONE, TINY, Case, Materials
from common.errors import BadInput, brief
from common.files import ROOT, sha256
from common.flags import positive
from eval.scores import write_rows
from training.config_files import words_of
from training.curves import read_log
from training.graph import GraphedStep

logger = logging.getLogger(__name__)
DEVICE = torch.device("cuda")
PARTS = ("right", "step", "kill", "run")
PATHS = ("padded", "packed", "padded, graph", "packed, graph")
LIMITS = {"float32": 1e-3, "float32, graph": 1e-3, "bf16": 0.15}  # errors of a right step
NOT_GRAPHED = ("dclr", "esimcse", "memory_bank", "moco")  # see `Objective.not_replayed`
BATCHES, WARM, TIMED = 8, 10, 50  # different batches; steps before and during a measurement
KILLED = 48  # steps of the runs that are killed
CONFIGS = ("simcse-bert-base", "infocse-retromae-bert-base")  # of the part `run`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    size = "size of the timed models"
    parser.add_argument("--model", choices=pair.MODELS, default="bert-base", help=size)
    parser.add_argument("--batch", type=positive, default=64, help="sentences per step")
    parser.add_argument("--length", type=positive, default=32, help="maximum tokens per sentence")
    parser.add_argument("--weights", help="run: a checkpoint to train, such as a small BERT")
    parser.add_argument("--text", help="run: its training text")
    parser.add_argument("--data_dir", help="run: a folder with STS-B, as data.prepare makes it")
    parser.add_argument("--steps", type=positive, default=1000, help="run: its steps")


def rows(args: argparse.Namespace) -> list[dict]:
    """The rows of the chosen parts, and those of --output that belong to other parts."""
    if DEVICE.type == "cuda" and not torch.cuda.is_available():
        raise BadInput("torch sees no CUDA GPU")
    name = torch.cuda.get_device_name(DEVICE) if DEVICE.type == "cuda" else "CPU"
    results: list[dict] = []
    if args.output and Path(args.output).is_file():
        before = json.loads(Path(args.output).read_text(encoding="utf-8"))
        results = [row for row in before if row["part"] not in args.parts]
    parts = {"right": right, "step": steps, "kill": kills, "run": runs}
    for part in args.parts:
        with tempfile.TemporaryDirectory() as folder:
            for row in parts[part](args, Path(folder)):
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


def right(args: argparse.Namespace, folder: Path) -> Iterator[dict]:
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
            for precision in LIMITS:
                if not ("graph" in precision and name in NOT_GRAPHED):
                    row = {"name": name, "path": path, "precision": precision}
                    yield attempt(row, partial(compared, model, inputs, precision, expected))


def sample(materials: Materials, name: str, path: str) -> tuple[nn.Module, dict]:
    """The model of a method and a batch whose second view has another sentence's tokens.

    Equal views have hardly a gradient.
    """
    dropout = {} if name == STAGE_ONE else {"dropout": 0.0}
    case = Case(name, "bert", path == "packed", "float32")
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
    inputs = send_to_device(inputs, device)
    torch.manual_seed(0)
    if "graph" in precision:
        step = GraphedStep(model, nullcontext)
        step({**inputs, "input_ids": inputs["input_ids"].clone().fill_(5)})  # captures the graph
        torch.manual_seed(0)
        output = step(inputs)
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
    gap, size = 0.0, 0.0
    for value, target in zip(values, expected, strict=True):
        gap += float((value - target).double().square().sum())
        size += float(target.double().square().sum())
    return float(f"{(gap / size) ** 0.5:.2e}")


def steps(args: argparse.Namespace, folder: Path) -> Iterator[dict]:
    """Forward, backward, clipping and AdamW, by path; InfoCSE's published step too."""
    materials = Materials(folder, pair.MODELS[args.model], args.batch, args.length)
    for name in ("infocse", "simcse", STAGE_ONE):
        for path in PATHS:
            yield attempt({"name": name, "path": path}, partial(our_step, materials, name, path))
    row = {"name": "infocse", "path": "published"}
    yield attempt(row, partial(published_step, args))


def our_step(materials: Materials, name: str, path: str) -> dict:
    """The step of a method as the training scripts take it."""
    case = Case(name, "bert", path.startswith("packed"), "bf16")
    model, collator = materials.parts(case, cuda_graph="graph" in path)
    batches = []
    for number in range(BATCHES):
        first = number * materials.batch % (2 * materials.batch)
        batches.append(collator([(0, first + row, number) for row in range(materials.batch)]))
    return measured(model, batches, "graph" in path)


def published_step(args: argparse.Namespace) -> dict:
    """InfoCSE's step as in the authors' code, on batches like ours."""
    lm = pair.masked_lm(args.model)
    batches = [pair.batch(lm.config, args.batch, args.length, seed) for seed in range(BATCHES)]
    return measured(pair.PlainInfoCSE(lm), batches, graph=False)


def measured(model: nn.Module, batches: list[dict], graph: bool) -> dict:
    """Mean milliseconds of a step, tokens per second, and peak memory."""
    model = model.to(DEVICE).train()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=DEVICE.type == "cuda")
    tokens = sum(int(given["attention_mask"].sum()) for given in batches) / len(batches)
    batches = [send_to_device(given, DEVICE) for given in batches]
    half = partial(torch.autocast, DEVICE.type, dtype=torch.bfloat16)
    graphed = GraphedStep(model, half) if graph else None

    def take(number: int) -> None:
        given = batches[number % len(batches)]
        if graphed is not None:
            graphed(given)
        else:
            with half():
                output = model(**given)
            (output if isinstance(output, Tensor) else output.loss).backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
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
    row = {"ms": round(ms, 2), "tokens_per_s": round(1000 * tokens / ms)}
    return row | {"memory_mb": round(memory / 1e6)}


def wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def kills(args: argparse.Namespace, folder: Path) -> Iterator[dict]:
    """Runs of SimCSE that a signal ends at their first checkpoint, resumed, beside a whole one."""
    materials = Materials(folder, pair.MODELS[args.model], args.batch, args.length)
    flags = {
        "method": "simcse",
        "model_name_or_path": folder / "bert",
        "train_file": folder / "text",
        "per_device_train_batch_size": materials.batch,
        "max_length": materials.length,
        "max_steps": KILLED,
        "save_steps": KILLED // 3,
        "dev": "none",
    }
    for graph in (False, True):
        own = flags | {"cuda_graph": graph, "cache_dir": folder / f"cache {graph}"}
        for number in (signal.SIGKILL, signal.SIGTERM):
            row = {"name": f"resume after {number.name}", "path": "graph" if graph else "no graph"}
            yield attempt(row, partial(resumed, own, folder / f"whole {graph}", number))


def resumed(flags: dict[str, Any], whole: Path, number: signal.Signals) -> dict:
    """Whether a run that a signal ends and that is resumed has the weights of a whole run."""
    output = whole.with_name(f"{number.name} {whole.name}")
    script(flags, whole)  # a finished run stays
    code = script(flags, output, number)
    script(flags, output)
    weights = [sha256(folder / "model.safetensors") for folder in (whole, output)]
    return {"exit_code": code, "equal": weights[0] == weights[1]}


def runs(args: argparse.Namespace, folder: Path) -> Iterator[dict]:
    """SimCSE, and InfoCSE whose network reads the vector, on real text."""
    if not (args.weights and args.text and args.data_dir):
        return
    for config in CONFIGS:
        flags = {
            "config": [ROOT / "configs" / f"{name}.yaml" for name in (config, "mini")],
            "model_name_or_path": args.weights,
            "train_file": args.text,
            "data_dir": args.data_dir,
            "cache_dir": folder / f"cache {config}",
            "max_steps": args.steps,
            "eval_steps": min(125, args.steps),
            "cuda_graph": True,
        }
        yield attempt({"name": config}, partial(scored, flags, folder / config))


def scored(flags: dict[str, Any], output: Path) -> dict:
    """Best and last STS-B dev score of a run, and milliseconds of its steps."""
    script(flags, output)
    lines = read_log(output)
    dev = [round(line["eval_stsb_spearman"], 2) for line in lines if "eval_stsb_spearman" in line]
    ms = 1000 * lines[-1]["train_runtime"] / flags["max_steps"]
    return {"ms": round(ms, 1), "best_dev": max(dev), "last_dev": dev[-1], "dev": dev}


def script(flags: dict[str, Any], output: Path, number: signal.Signals | None = None) -> int:
    """Run run_unsup.py; a signal is sent at the first checkpoint. Returns the exit code.

    Raises:
        RuntimeError: it ended otherwise than by the signal or well.
    """
    flags = flags | {"output_dir": output, "test_tasks": "none", "bf16": True}
    flags |= {"report_to": "none", "use_cpu": DEVICE.type == "cpu"}
    words = words_of(flags)
    log = output.with_name(f"{output.name}.log")
    with log.open("w") as stream:
        child = subprocess.Popen(
            [sys.executable, "run_unsup.py", *words],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=stream,
            start_new_session=True,
        )
        try:
            while number and child.poll() is None and not [*output.glob("checkpoint-*")]:
                time.sleep(0.02)
            if number:
                os.killpg(child.pid, number)
            code = child.wait()
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
    expected = {None: 0, signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 75}[number]
    if code != expected:
        raise RuntimeError(f"exit code {code}: {log.read_text()[-250:]}")
    return code
