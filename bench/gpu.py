"""What a training step asks of a GPU: counted on a pretend one, or measured on the one that is here.

python -m bench gpu --pretend --output FILE.json     # any machine with g++
python -m bench gpu --output FILE.json               # a GPU: minutes; writes FILE.json and FILE.md, row by row
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
from collections.abc import Iterator
from pathlib import Path

import torch

from bench.pair import MODELS
from common.errors import BadInput
from common.flags import positive
from eval.scores import markdown, write_rows

logger = logging.getLogger(__name__)
_GUARD = Path(__file__).parent / "pretend" / "guard.cpp"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the two ways."""
    parser.add_argument("--pretend", action="store_true", help="count kernels and synchronisations without a GPU")
    parser.add_argument("--layers", type=positive, default=12, help="with --pretend: of the models")
    parser.add_argument("--objectives", nargs="*", default=[], help="with --pretend: these alone (default: all)")
    parser.add_argument("--model", choices=MODELS, default="bert-base", help="on a GPU: sizes; the weights are random")
    parser.add_argument("--steps", type=positive, default=200, help="on a GPU: of the training run")
    parser.add_argument("--batch", type=positive, default=64, help="sentences")
    parser.add_argument("--length", type=positive, default=32, help="tokens at which sentences are cut")


def rows(args) -> list[dict]:
    """A row a case: what a step asks of the device, or how long it takes there."""
    if args.pretend:
        return list(pretended(args.objectives, args.layers, args.batch, args.length))
    if not torch.cuda.is_available():
        raise BadInput("no GPU is here that torch can use: `--pretend` counts what a step would ask of one")
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        raise BadInput("this GPU does not compute in bfloat16, in which everything is measured")
    from bench import gpu_measures

    found = []
    for row in gpu_measures.rows(args, torch.device("cuda:0")):
        logger.info("%s", row)
        found.append(row)
        if args.output:  # now: who stops it keeps what it has measured
            write_rows(args.output, found)
            Path(args.output).with_suffix(".md").write_text(gpu_measures.page(found), encoding="utf-8")
    return found


def pretended(objectives: list[str], layers: int, batch: int, length: int, half: bool = False) -> Iterator[dict]:
    """The counts of `bench.pretend`, from a process of its own: the device must be there before torch is.

    With `half` of the cases every two values of family, path and precision still meet.

    Raises:
        BadInput: torch is no CPU build, or no C++ compiler is here that can build against it.
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
    """A Python process with the pretend device, which is built in a folder."""
    environment = os.environ | {"LD_PRELOAD": str(_compiled(folder))}
    command, root = [sys.executable, *argv], Path(__file__).parents[1]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


def _compiled(folder: Path) -> Path:
    """The pretend device as a library."""
    if torch.version.cuda is not None:
        raise BadInput("--pretend: needs a CPU build of torch; this one has a CUDA device of its own")
    if shutil.which("g++") is None:
        raise BadInput("--pretend: needs g++, which builds the pretend device in seconds")
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


def table(found: list[dict]) -> str:
    """The rows as Markdown."""
    columns = list(dict.fromkeys(name for row in found for name in row if name not in ("machine", "torch", "threads")))
    return markdown([columns, *([str(row.get(name, "")) for name in columns] for row in found)])
