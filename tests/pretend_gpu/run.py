"""The pretend device in a process of its own: it must be loaded before torch."""

from __future__ import annotations

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

from common.errors import BadInput
from common.files import ROOT

logger = logging.getLogger(__name__)
_GUARD = Path(__file__).parent / "guard.cpp"


def pretended(objectives: list[str], layers: int, batch: int, length: int, half: bool = False) -> Iterator[dict]:
    """The counts of `tests.pretend_gpu`, from a separate process: the device must be loaded before torch.

    `half` runs half of the cases, in which every two values of family, path and precision still occur together.

    Raises:
        BadInput: torch is not a CPU build, or no C++ compiler can build against it.
    """
    size = f"--layers={layers}", f"--batch={batch}", f"--length={length}", *["--half"] * half
    with tempfile.TemporaryDirectory() as folder:
        done = run_pretending(["-m", "tests.pretend_gpu", *size, "--objectives", *objectives], Path(folder))
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
        raise BadInput("the pretend device needs a CPU build of torch; this one has its own CUDA device")
    if shutil.which("g++") is None:
        raise BadInput("the pretend device needs g++ to build the pretend device; install it")
    torch_folder, library = Path(torch.__path__[0]), folder / "guard.so"
    done = subprocess.run(
        [
            "g++",
            "-shared",
            "-fPIC",
            "-std=c++20",
            f"-I{torch_folder}/include",
            f"-I{torch_folder}/include/torch/csrc/api/include",
            str(_GUARD),
            "-o",
            str(library),
            f"-L{torch_folder}/lib",
            f"-Wl,-rpath,{torch_folder}/lib",
            "-lc10",
            "-ltorch_cpu",
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise BadInput(f"g++ cannot build the pretend device: {done.stderr[:300]}")
    return library
