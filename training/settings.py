"""All settings of a run, made once: `read` fills them from a command line, `fill` from Python, both
over a YAML file.

A value of the file is parsed like a flag, so `3e-5` is a number, `no` is a string, and an error
names the flag. A flag wins over the file, and also replaces the alternatives to it that the file
names.
"""

from __future__ import annotations

import difflib
import json
import sys
from argparse import SUPPRESS
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from functools import wraps
from os import PathLike, fspath
from pathlib import Path
from typing import Any, get_type_hints

import torch
from transformers import HfArgumentParser, TrainingArguments

from common.arguments import (
    DataArguments,
    ModelArguments,
    PretrainArguments,
    ScoredArguments,
    SentenceArguments,
)
from common.errors import BadInput, brief, refuse_tokens
from common.files import read_yaml
from common.flags import Parser
from common.ranges import check_range
from models.loading import load_config
from models.objectives.base import Method
from training.methods import STAGE_ONE, SUP, load_method, method_names
from training.run_arguments import RunArguments

_BF16_INSTRUCTIONS = (
    "avx512_bf16",
    "amx_bf16",
)  # x86; without either, torch emulates bfloat16 in software
_HELP = {"h", "help", "help_all"}
_REPLACED = {  # keys of a configuration that a flag excludes
    "train_file": {"dataset_name", "dataset_config_name", "dataset_split"},
    "dataset_name": {"train_file"},
    "model_name_or_path": {"config_name", "vocabulary_size"},
    "config_name": {"model_name_or_path"},
    "dev": {"dev_file", "dev_beir"},
    "dev_file": {"dev", "dev_beir"},
    "dev_beir": {"dev", "dev_file"},
    "num_train_epochs": {"max_steps"},
    "max_steps": {"num_train_epochs"},
}


@dataclass
class Settings:
    """What a run does.

    Attributes:
        script: the script that runs it.
        method: a file of models/objectives; None in stage 1.
        model_args, method_args, data_args, args: the flags; stage 1 has no method's.
        given: every value that is not a default, by name: words, or an object from Python.
        sources: where the given values are from: "flag", or the configuration file.
        chosen: value and reason of every `auto`.
    """

    script: str
    method: Method | None
    model_args: Any
    method_args: Any
    data_args: Any
    args: RunArguments
    given: dict[str, Any]
    sources: dict[str, str]
    chosen: dict[str, str]

    @property
    def values(self) -> dict[str, Any]:
        """Every setting by name, as the record keeps it."""
        method_args = {} if self.method_args is None else vars(self.method_args)
        return {
            **vars(self.model_args),
            **method_args,
            **vars(self.data_args),
            **self.args.to_dict(),
        }

    @property
    def command(self) -> list[str]:
        """The command that repeats the run; it needs no configuration file."""
        return ["python", self.script, *words_of(self.given)]

    def describe_sources(self) -> str:
        """A line for every value that is not a default, with where it is from."""
        shown = {name: " ".join(map(_word, _parts(value))) for name, value in self.given.items()}
        return "".join(
            f"\n  settings: {name} {value} ({self.sources[name]})" for name, value in shown.items()
        )

    def describe_choices(self) -> str:
        """A line for every `auto`."""
        return "".join(f"\n{name:>10}: {choice}, by auto" for name, choice in self.chosen.items())


def read(script: str, argv: Sequence[str] | None, description: str) -> Settings:
    """The settings of a command line (None: of this process).

    Raises:
        BadInput: see `fill` and `values_of`.
        SystemExit: after printing --help.
    """
    values = values_of(sys.argv[1:] if argv is None else argv)
    if _HELP & values.keys():
        name = lookup(values, "method")
        method = None if script == STAGE_ONE or name is None else load_method(name, script)
        if script != STAGE_ONE:
            description += f"\nmethods: {', '.join(method_names())}; --method NAME --help shows the flags of one"
        SettingsParser(script, method, description, "help_all" in values).print_help()
        raise SystemExit(0)
    return fill(script, values)


def fill(script: str, values: Mapping[str, Any]) -> Settings:
    """The settings that these values give, over the file `config` if there is one among them.

    Args:
        script: `STAGE_ONE`, `UNSUP` or `SUP`.
        values: by flag name: words, or objects that are written as words and parsed; None leaves a
            flag out.

    Raises:
        BadInput: an unknown name, a value of the wrong type or out of range, a file that is not a
            flat YAML mapping.
    """
    flags = {
        name: value for name, value in values.items() if value is not None and name != "config"
    }
    config = lookup(values, "config")
    file = {} if config is None else _without_replaced(read_config(config), flags)
    refuse_tokens(words_of(file | flags))
    method = (
        None
        if script == STAGE_ONE
        else load_method(_single("method", (file | flags).get("method")), script)
    )
    parser = SettingsParser(script, method)
    parser.check_names(file, flags, config)
    given = file | flags
    parsed = parser.parse(given)
    chosen = {}
    for name, choose in AUTOMATIC.items():
        if getattr(parsed, name, None) == "auto":
            value, reason = choose(parsed)
            setattr(parsed, name, value)
            given[name], chosen[name] = value, f"{_word(value)} ({reason})"
    sources = {name: "flag" if name in flags else str(config) for name in given}
    *groups, args = _built(kinds_of(script, method), parsed)
    model_args, method_args, data_args = groups if method else (groups[0], None, groups[1])
    return Settings(
        script, method, model_args, method_args, data_args, args, given, sources, chosen
    )


def _use_cpu(flags: Any) -> tuple[bool, str]:
    return (
        (False, "there is a GPU") if torch.cuda.is_available() else (True, "there is no CUDA GPU")
    )


def _bf16(flags: Any) -> tuple[bool, str]:
    if not flags.use_cpu and not torch.cuda.is_available():
        return False, "there is no CUDA GPU; with --use_cpu auto the processor decides"
    if not flags.use_cpu:
        able, where = torch.cuda.is_bf16_supported(including_emulation=False), "the GPU"
    else:
        able, where = (
            any(map(torch.cpu.get_capabilities().get, _BF16_INSTRUCTIONS)),
            "the processor",
        )
    return able, f"{where} {'supports' if able else 'does not support'} it"


def _skip_from(flags: Any) -> tuple[int, str]:
    model = flags.model_name_or_path or getattr(flags, "config_name", None)
    if model is None:
        raise BadInput(
            "--skip_from auto: depends on the model; give --model_name_or_path or --config_name"
        )
    config = load_config(model)
    if hasattr(config, "skip_from"):
        return config.skip_from, "the layer used in stage 1"
    return (
        config.num_hidden_layers // 2,
        f"half of {config.num_hidden_layers} layers, as 6 of 12 in InfoCSE 3.1",
    )


# Values of `auto`, with their reasons; bf16 depends on the device and comes after it.
AUTOMATIC: dict[str, Callable[[Any], tuple[Any, str]]] = {
    "use_cpu": _use_cpu,
    "bf16": _bf16,
    "skip_from": _skip_from,
}


def _built(kinds: Sequence[type], found: Any) -> list[Any]:
    """One instance of each dataclass."""
    for kind in kinds:
        for name, hint in get_type_hints(kind, include_extras=True).items():
            if hasattr(found, name):
                check_range(name, getattr(found, name), hint)
    try:
        return [
            kind(**{f.name: getattr(found, f.name) for f in fields(kind) if f.init})
            for kind in kinds
        ]
    except (ValueError, ImportError, OSError) as error:  # transformers checks its own values
        raise BadInput(brief(error)) from error


def kinds_of(script: str, method: Method | None) -> tuple[type, ...]:
    """The dataclasses whose fields are the flags of a script: model, method, data and training."""
    if script == STAGE_ONE:
        return PretrainArguments, DataArguments, RunArguments
    data = ScoredArguments if script == SUP else SentenceArguments
    return ModelArguments, *([method.arguments] if method else []), data, RunArguments


class SettingsParser(Parser, HfArgumentParser):
    """The flags of a script and method; `--help` shows those of this project, with `everything` transformers' too."""

    def __init__(
        self, script: str, method: Method | None, description: str = "", everything: bool = False
    ) -> None:
        kinds = kinds_of(script, method)
        if method is not None:
            method.arguments._argument_group_name = f"flags of {method.name}"
        usage = f"python {script} [--config FILE] [--flag value ...]"
        super().__init__(kinds, usage=usage, description=description)
        theirs = {f.name for f in fields(TrainingArguments)} - {*RunArguments.__annotations__}
        for action in self._actions:
            words = [word for word in action.option_strings if "-" not in word.lstrip("-")]
            action.option_strings = words  # one spelling
            if action.const is False and action.help:
                action.help = f"same as --{action.dest} false"
            if action.type and not action.choices:
                action.metavar = action.type.__name__.replace("string_to_bool", "bool")
            if not everything and (action.dest in theirs or not action.help):
                action.help = SUPPRESS
            if action.dest in AUTOMATIC:
                action.type = _or_auto(action.type)
        self.names = {
            word.lstrip("-") for action in self._actions for word in action.option_strings
        } - _HELP
        self.add_argument(
            "--config", metavar="FILE", help="YAML file of flags; flags on the command line win"
        )
        self.add_argument("--help_all", action="store_true", help="show transformers' flags too")

    def check_names(self, file: Iterable[str], flags: Iterable[str], config: str | None) -> None:
        """Raise BadInput, with the nearest name, for a key of the file or a flag that does not exist."""
        named = {f"{config}: unknown key '{name}'": name for name in file}
        named |= {f"unknown argument '--{name}'": name for name in flags}
        for problem, name in named.items():
            if name not in self.names:
                near = difflib.get_close_matches(name, sorted(self.names), n=1)
                raise BadInput(
                    f"{problem}; "
                    + (f"did you mean '{near[0]}'?" if near else "--help lists the flags")
                )

    def parse(self, given: Mapping[str, Any]) -> Any:
        """A namespace with every flag's value, `auto` as it stands; values from Python are parsed like flags."""
        for name, value in given.items():
            if len(_parts(value)) > 1 and self._option_string_actions[f"--{name}"].nargs != "+":
                _single(name, value)
        return self.parse_args(words_of(given))


def values_of(argv: Sequence[str]) -> dict[str, list[str]]:
    """The words after each flag of a command line; BadInput for a flag given twice, or a word without a flag."""
    values: dict[str, list[str]] = {}
    open_to: list[str] | None = None
    for word in argv:
        if word.startswith("--") or word == "-h":
            name, equals, value = word.lstrip("-").partition("=")
            if name in values:
                raise BadInput(f"--{name}: given twice; put all values after one flag")
            values[name] = [value] if equals else []
            open_to = None if equals else values[name]
        elif open_to is None:
            raise BadInput(f"unknown argument '{word}'; --help lists the flags")
        else:
            open_to.append(word)
    return values


def words_of(values: Mapping[str, Any]) -> list[str]:
    """The command line that gives these values."""
    words = []
    for name, value in values.items():
        parts = [_word(part) for part in _parts(value)]
        words += [f"--{name}={parts[0]}"] if len(parts) == 1 else [f"--{name}", *parts]
    return words


def _word(value: Any) -> str:
    value = value.value if isinstance(value, Enum) else value
    return json.dumps(value) if isinstance(value, (bool, dict)) else str(value)


def _parts(value: Any) -> list[Any]:
    """A value as a list; enumerations and paths as their words."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    parts = [part.value if isinstance(part, Enum) else part for part in parts]
    return [fspath(part) if isinstance(part, PathLike) else part for part in parts]


def _single(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if len(parts := _parts(value)) != 1:
        raise BadInput(f"--{name}: expected one argument, not {len(parts)}")
    return parts[0]


def lookup(values: Mapping[str, Any], name: str) -> str | None:
    """One value of those given, else of their configuration file; None if neither names it."""
    if name in values or name == "config" or values.get("config") is None:
        return _single(name, values.get(name))
    return _single(name, _without_replaced(read_config(lookup(values, "config")), values).get(name))


def _without_replaced(file: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    replaced = {key for name in flags for key in _REPLACED.get(name, ())}
    return {key: value for key, value in file.items() if key not in replaced or key in flags}


def read_config(path: str) -> dict[str, str | list[str]]:
    """Read a flat YAML mapping; every scalar stays the string in the file."""
    content = read_yaml(Path(path), strings=True)
    if not isinstance(content, dict):
        raise BadInput(f"{path}: must be a YAML mapping with one `flag: value` per line")
    for key, value in content.items():
        parts = value if isinstance(value, list) else [value]
        if not parts or not all(isinstance(part, str) and part for part in parts):
            raise BadInput(
                f"{path}: '{key}' needs a value or a list of values; omit the key for the default"
            )
    return content


def _or_auto(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    @wraps(kind)
    def parsed(text: str) -> Any:
        return text if text == "auto" else kind(text)

    return parsed
