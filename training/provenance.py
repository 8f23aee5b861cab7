"""Provenance of a run: versions, commit, machine, and hashes of the files that settings name."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from common.files import ROOT
from models.folder import hashes_of

_PACKAGES = ("torch", "transformers", "accelerate", "datasets", "tokenizers", "numpy", "scipy")


def provenance(on_gpu: bool | None = None) -> dict[str, Any]:
    """Versions, commit and machine; `on_gpu` None means a GPU is used if available."""
    on_gpu = torch.cuda.is_available() if on_gpu is None else on_gpu
    return {
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in _PACKAGES},
        },
        "commit": _git("rev-parse", "HEAD"),
        "changed_files": len((_git("status", "--porcelain") or "").splitlines()),
        "hardware": {
            "machine": platform.machine(),
            "device": torch.cuda.get_device_name() if on_gpu else "cpu",
            "threads": torch.get_num_threads(),
        },
    }


def _git(*command: str) -> str | None:
    git = ["git", "-C", str(ROOT), *command]
    try:
        done = subprocess.run(git, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def start_of(path: str, files: Mapping[str, str]) -> str | None:
    """What an initial model is, by the hashes of its files in `contents`.

    The sha256 of a local model's single weights file, None for other local models; a hub id itself.
    """
    return files.get("model.safetensors") if files or Path(path).exists() else path


def contents(settings: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """sha256 of the files of every local model folder or JSON file that a setting names.

    As {setting: {file: hash}}. For a list, the files are "1 FILE", "2 FILE" and so on; an item
    without local files represents itself.
    """
    hashed = {name: _files(value) for name, value in settings.items()}
    return {name: hashes for name, hashes in hashed.items() if hashes}


def _files(value: Any) -> dict[str, str]:
    if isinstance(value, str):
        return hashes_of(value) if value else {}
    if not isinstance(value, (list, tuple)):
        return {}
    numbered, found = {}, False
    for number, item in enumerate(value, 1):
        files = _files(item)
        found = found or bool(files)
        for file, content in (files or {"": item}).items():
            numbered[f"{number} {file}".rstrip()] = content
    return numbered if found else {}
