"""The flag value `auto`: choose `--use_cpu`, `--bf16` and `--skip_from` from the machine and the model."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch
from transformers.hf_argparser import string_to_bool

from common.errors import BadInput
from common.flags import Parser
from eval.encode import BF16_INSTRUCTIONS
from models.loading import load_config

Settings = dict[str, str | None]


class Automatic:
    """Replaces `auto` on the command line; the record and a resume see only the chosen value.

    Attributes:
        choices: value and reason by flag, for the plan.
    """

    def __init__(self) -> None:
        self.choices: dict[str, str] = {}

    def __call__(self, words: Sequence[str]) -> list[str]:
        """The flags with every `auto` replaced; the last of repeated flags counts."""
        if not any(word.rpartition("=")[2] == "auto" for word in words):
            return list(words)
        finder = Parser(add_help=False)
        for name in ("model_name_or_path", "config_name"):
            finder.add_argument(f"--{name}")
        for name in _CHOICES:
            finder.add_argument(f"--{name}", nargs="?", const="true")
        found, rest = finder.parse_known_args(list(words))
        settings: Settings = vars(found)
        for name, choose in _CHOICES.items():
            if settings[name] == "auto":
                settings[name], reason = choose(settings)
                self.choices[name] = f"{settings[name]} ({reason})"
        return [*rest, *(f"--{name}={value}" for name, value in settings.items() if value is not None)]

    def __str__(self) -> str:
        return "".join(f"\n{name:>10}: {choice}, by auto" for name, choice in self.choices.items())


def _use_cpu(settings: Settings) -> tuple[str, str]:
    return ("false", "there is a GPU") if torch.cuda.is_available() else ("true", "there is no CUDA GPU")


def _bf16(settings: Settings) -> tuple[str, str]:
    if not _is_true(settings["use_cpu"]) and not torch.cuda.is_available():
        return "false", "there is no CUDA GPU; the processor is asked with --use_cpu auto"
    if not _is_true(settings["use_cpu"]):
        able, where = torch.cuda.is_bf16_supported(including_emulation=False), "the GPU"
    else:
        able, where = any(map(torch.cpu.get_capabilities().get, BF16_INSTRUCTIONS)), "the processor"
    return ("true", f"{where} supports it") if able else ("false", f"{where} does not support it")


def _is_true(value: str | None) -> bool:
    with suppress(ArgumentTypeError):  # the parser reports it
        return string_to_bool(value or "false")
    return False


def _skip_from(settings: Settings) -> tuple[str, str]:
    model = settings["model_name_or_path"] or settings["config_name"]
    if model is None:
        raise BadInput("--skip_from auto: depends on the model; give --model_name_or_path or --config_name")
    config = load_config(model)
    if hasattr(config, "skip_from"):
        return str(config.skip_from), "the layer used in stage 1"
    return str(config.num_hidden_layers // 2), f"half of {config.num_hidden_layers} layers, as 6 of 12 in InfoCSE 3.1"


_CHOICES: dict[str, Callable[[Settings], tuple[str, str]]] = {
    "use_cpu": _use_cpu, "bf16": _bf16, "skip_from": _skip_from,
}  # in this order: the precision depends on the device  # fmt: skip
