"""The flag value `auto`: `--use_cpu`, `--bf16` and `--skip_from` from the machine and the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from common.errors import BadInput
from eval.encode import BF16_INSTRUCTIONS
from models.loading import load_config


def _use_cpu(found: Any) -> tuple[bool, str]:
    return (False, "there is a GPU") if torch.cuda.is_available() else (True, "there is no CUDA GPU")


def _bf16(found: Any) -> tuple[bool, str]:
    if not found.use_cpu and not torch.cuda.is_available():
        return False, "there is no CUDA GPU; the processor is asked with --use_cpu auto"
    if not found.use_cpu:
        able, where = torch.cuda.is_bf16_supported(including_emulation=False), "the GPU"
    else:
        able, where = any(map(torch.cpu.get_capabilities().get, BF16_INSTRUCTIONS)), "the processor"
    return able, f"{where} {'supports' if able else 'does not support'} it"


def _skip_from(found: Any) -> tuple[int, str]:
    model = found.model_name_or_path or getattr(found, "config_name", None)
    if model is None:
        raise BadInput("--skip_from auto: depends on the model; give --model_name_or_path or --config_name")
    config = load_config(model)
    if hasattr(config, "skip_from"):
        return config.skip_from, "the layer used in stage 1"
    return config.num_hidden_layers // 2, f"half of {config.num_hidden_layers} layers, as 6 of 12 in InfoCSE 3.1"


AUTOMATIC: dict[str, Callable[[Any], tuple[Any, str]]] = {
    "use_cpu": _use_cpu,
    "bf16": _bf16,  # after the device, on which it depends
    "skip_from": _skip_from,
}
