"""The cost of a training step on a GPU: operations counted on a pretend GPU, or times measured on a real one.

python -m bench gpu --pretend --output FILE.json     # any machine with g++
python -m bench gpu --output FILE.json               # minutes on a GPU; writes FILE.json and FILE.md, row by row
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from bench.pair import MODELS
from common.errors import BadInput
from common.files import ROOT
from common.flags import positive
from eval.scores import markdown, write_rows

logger = logging.getLogger(__name__)
_GUARD = ROOT / "bench" / "pretend" / "guard.cpp"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pretend", action="store_true", help="count kernels and synchronisations without a GPU")
    parser.add_argument("--layers", type=positive, default=12, help="with --pretend: layers of the models")
    parser.add_argument("--objectives", nargs="*", default=[], help="with --pretend: only these (default: all)")
    parser.add_argument("--model", choices=MODELS, default="bert-base", help="on a GPU: size; the weights are random")
    parser.add_argument("--steps", type=positive, default=200, help="on a GPU: steps of the training run")
    parser.add_argument("--batch", type=positive, default=64, help="sentences per step")
    parser.add_argument("--length", type=positive, default=32, help="maximum tokens per sentence")


def rows(args) -> list[dict]:
    """One row per case: the operations of a step, or its time."""
    if args.pretend:
        return list(pretended(args.objectives, args.layers, args.batch, args.length))
    if not torch.cuda.is_available():
        raise BadInput("torch finds no GPU; --pretend counts the operations of a step without one")
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        raise BadInput("this GPU does not support bfloat16, which all measurements use")
    from bench import gpu_measures

    results = []
    for row in gpu_measures.rows(args, torch.device("cuda:0")):
        logger.info("%s", row)
        results.append(row)
        if args.output:  # after every row, so that a stopped command keeps its results
            write_rows(args.output, results)
            Path(args.output).with_suffix(".md").write_text(page(results), encoding="utf-8")
    return results


def pretended(objectives: list[str], layers: int, batch: int, length: int, half: bool = False) -> Iterator[dict]:
    """The counts of `bench.pretend`, from a separate process: the device must be loaded before torch.

    `half` runs half of the cases, in which every two values of family, path and precision still occur together.

    Raises:
        BadInput: torch is not a CPU build, or no C++ compiler can build against it.
    """
    size = f"--layers={layers}", f"--batch={batch}", f"--length={length}", *["--half"] * half
    with tempfile.TemporaryDirectory() as folder:
        done = run_pretending(["-m", "bench.pretend", *size, "--objectives", *objectives], Path(folder))
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    for line in done.stdout.splitlines():
        row = json.loads(line)
        for place, count in row.pop("places").items():
            logger.info("%s, %s: %d of %s", row["objective"], row["family"], count, place)
        yield row


def run_pretending(argv: list[str], folder: Path) -> subprocess.CompletedProcess:
    """Run a Python process with the pretend device, which is built in `folder`."""
    environment = os.environ | {"LD_PRELOAD": str(_compiled(folder))}
    return subprocess.run([sys.executable, *argv], cwd=ROOT, env=environment, capture_output=True, text=True)


def _compiled(folder: Path) -> Path:
    """Build the pretend device as a shared library."""
    if torch.version.cuda is not None:
        raise BadInput("--pretend needs a CPU build of torch; this one has its own CUDA device")
    if shutil.which("g++") is None:
        raise BadInput("--pretend needs g++ to build the pretend device; install it")
    torch_folder, library = Path(torch.__path__[0]), folder / "guard.so"
    done = subprocess.run(
        ["g++", "-shared", "-fPIC", "-std=c++20", f"-I{torch_folder}/include",
         f"-I{torch_folder}/include/torch/csrc/api/include", str(_GUARD), "-o", str(library), f"-L{torch_folder}/lib",
         f"-Wl,-rpath,{torch_folder}/lib", "-lc10", "-ltorch_cpu"],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise BadInput(f"--pretend: g++ cannot build the pretend device: {done.stderr[:300]}")
    return library


def table(rows: list[dict], hidden: Sequence[str] = ("machine", "torch", "threads")) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row if name not in hidden))
    return markdown([columns, *(["" if row.get(name) is None else str(row[name]) for name in columns] for row in rows)])


def page(results: list[dict]) -> str:
    """The results as a Markdown page."""
    first = results[0]
    rate = f"A bfloat16 product of 8192 x 8192 matrices runs at {first['product_tflops']} TFLOP/s."
    measured = table(results, ("device", "product_tflops"))
    return f"# {first['device']}\n\n{rate} `python -m bench gpu` measured:\n\n{measured}\n"
