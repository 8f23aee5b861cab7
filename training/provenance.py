"""What produced a number: versions, commit, machine, and the content of the start checkpoint."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from training.manifest import sha256

_PACKAGES = ("torch", "transformers", "accelerate", "datasets", "tokenizers", "numpy", "scipy")


def provenance() -> dict[str, Any]:
    """Versions, commit and machine, as far as they bear on numbers."""
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        "commit": _git("rev-parse", "HEAD"),
        "changed_files": len((_git("status", "--porcelain") or "").splitlines()),
        "hardware": {
            "machine": platform.machine(),
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "threads": torch.get_num_threads(),
        },
    }


def _git(*command: str) -> str | None:
    root = Path(__file__).parents[1]
    try:
        done = subprocess.run(["git", "-C", str(root), *command], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def weights_hash(path: str) -> str:
    """sha256 of the weights of a local folder; of a hub id, the id itself."""
    file = Path(path) / "model.safetensors"
    if not file.is_file():
        return path
    return sha256(file)
