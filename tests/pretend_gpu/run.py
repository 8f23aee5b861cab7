"""The pretend device in a process of its own: it must be loaded before torch. Needs g++ and a CPU build of torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from common.files import ROOT

_GUARD = Path(__file__).parent / "guard.cpp"


def pretended(layers: int, batch: int, length: int) -> Iterator[dict]:
    """The rows of `tests.pretend_gpu.steps`, from a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        done = run_pretending(["-m", "tests.pretend_gpu.steps", *map(str, (layers, batch, length))], Path(folder))
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    yield from map(json.loads, done.stdout.splitlines())


def run_pretending(argv: list[str], folder: Path) -> subprocess.CompletedProcess:
    """Run a Python process with the pretend device, which is built in `folder`."""
    torch_folder, library = Path(torch.__path__[0]), folder / "guard.so"
    headers = [f"-I{torch_folder}/include", f"-I{torch_folder}/include/torch/csrc/api/include"]
    linked = [f"-L{torch_folder}/lib", f"-Wl,-rpath,{torch_folder}/lib", "-lc10", "-ltorch_cpu"]
    subprocess.run(["g++", "-shared", "-fPIC", "-std=c++20", *headers, _GUARD, "-o", library, *linked], check=True)
    environment = os.environ | {"LD_PRELOAD": str(library)}
    return subprocess.run([sys.executable, *argv], cwd=ROOT, env=environment, capture_output=True, text=True)
