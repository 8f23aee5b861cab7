"""All settings of a run, made once: from a command line or from Python, over YAML files.

A value of a file is parsed like a flag, so `3e-5` is a number, `no` is a string, and an error names
the flag. A later file wins over an earlier one and a flag over every file; each also replaces the
alternatives to it that came before.
"""

from __future__ import annotations

import sys
from argparse import SUPPRESS
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import Field, dataclass, fields
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_origin, get_type_hints

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
from common.flags import Parser
from common.old_flags import TRAINER, TRAINING
from common.ranges import check_range, check_type
from eval.encode import bf16_here
from models.loading import load_config
from training.config_files import over, plain, read_config, with_sources, word_of, words_of
from training.methods import STAGE_ONE, SUP, load_method, method_names, script_of
from training.run_arguments import FACTS, RunArguments

if TYPE_CHECKING:
    from models.objectives.base import Method

_HELP = {"-h", "--help", "--help_all"}
_IDLE = {  # a flag that does nothing beside another
    "cuda_graph": "chunk_size",
    "vocabulary_size": "tokenizer_name",
}


@dataclass
class Settings:
    """What a run does.

    Attributes:
        script: the script that runs it.
        method: a file of models/objectives; None in stage 1.
        given: every value that is not a default, by name.
        sources: where the given values are from: "flag", "auto" or the configuration file.
        chosen: value and reason of every `auto`.
        model_args, method_args, data_args, args: the flags; stage 1 has no method's.
    """

    script: str
    method: Method | None
    given: dict[str, Any]
    sources: dict[str, str]
    chosen: dict[str, str]
    model_args: Any
    method_args: Any
    data_args: Any
    args: RunArguments

    @property
    def values(self) -> dict[str, Any]:
        """Every setting by name, as the record keeps it."""
        method_args = {} if self.method_args is None else vars(self.method_args)
        groups = vars(self.model_args), method_args, vars(self.data_args), self.args.to_dict()
        return {name: value for group in groups for name, value in group.items()}

    @property
    def command(self) -> list[str]:
        """The command that repeats the run; it needs no configuration file."""
        return ["python", self.script, *words_of(self.given)]

    def describe_sources(self) -> str:
        """A line for every value that is not a default, with where it is from."""
        lines = []
        for name, value in self.given.items():
            shown = " ".join(map(word_of, value if isinstance(value, list) else [value]))
            lines.append(f"\n  settings: {name} {shown} ({self.sources[name]})")
        return "".join(lines)

    def describe_choices(self) -> str:
        """A line for every `auto`."""
        return "".join(f"\n{name:>10}: {choice}, by auto" for name, choice in self.chosen.items())


def read(script: str, argv: Sequence[str] | None, description: str) -> Settings:
    """The settings of a command line (None: of this process); `description` is for --help.

    Raises:
        BadInput: an unknown name, a value of the wrong type or out of range, a file that is not a
            flat YAML mapping.
        SystemExit: after printing --help.
    """
    words = [*(sys.argv[1:] if argv is None else argv)]
    if _HELP.intersection(words):
        _print_help(script, words, description)
        raise SystemExit(0)
    parser, file = _opened(script, *_method_and_files(words))
    return _settled(parser, file, parser.values(words))


def fill(script: str, values: Mapping[str, Any]) -> Settings:
    """The settings that values by flag name give, over the files of `config` if it is among them.

    None leaves a flag out.

    Raises:
        BadInput: see `read`.
    """
    given = {name: plain(value) for name, value in values.items() if value is not None}
    config = given.pop("config", [])
    config = config if isinstance(config, list) else [config]
    check_type("config", config, list[str])
    method = given.get("method")
    check_type("method", method, str | None)
    parser, file = _opened(script, method, config)
    return _settled(parser, file, parser.typed(given))


def method_of(config: Any) -> str | None:
    """The method that a configuration file names, or several together."""
    return read_config(*(config if isinstance(config, (list, tuple)) else [config])).get("method")


def kinds_of(script: str, method: Method | None) -> tuple[type, ...]:
    """The dataclasses whose fields are the flags of a script: model, method, data, training."""
    if script == STAGE_ONE:
        return PretrainArguments, DataArguments, RunArguments
    data = ScoredArguments if script == SUP else SentenceArguments
    return ModelArguments, *([method.arguments] if method else []), data, RunArguments


class SettingsParser(Parser, HfArgumentParser):
    """The flags of a script and method.

    `--help` shows those of this project, with `everything` transformers' too.
    """

    old = TRAINING | TRAINER

    def __init__(
        self, script: str, method: Method | None, description: str = "", everything: bool = False
    ) -> None:
        self.script, self.method, self.kinds = script, method, kinds_of(script, method)
        if method is not None:
            group: Any = method.arguments
            group._argument_group_name = f"flags of {method.name}"
        usage = f"python {script} [--config FILE ...] [--flag value ...]"
        super().__init__(self.kinds, usage=usage, description=description)
        theirs = {f.name for f in fields(TrainingArguments)} - {*RunArguments.__annotations__}
        for action in self._actions:
            words = [word for word in action.option_strings if "-" not in word.lstrip("-")]
            action.option_strings = words  # one spelling in the help
            if action.const is False and action.help:
                action.help = f"same as --{action.dest} false"
            if callable(action.type) and not action.choices:
                named = getattr(action.type, "__name__", "value")
                action.metavar = named.replace("string_to_bool", "bool")
            if not everything and (action.dest in theirs or not action.help):
                action.help = SUPPRESS
            if action.dest in AUTOMATIC:
                action.type = _or_auto(action.type)
        config = "YAML files of flags; later files win, and flags on the command line"
        self.add_argument("--config", metavar="FILE", nargs="+", help=config)
        self.add_argument("--help_all", action="store_true", help="show transformers' flags too")
        self.defaults: dict[str, Any] = {}
        self.hints: dict[str, Any] = {}
        for kind in self.kinds:
            hints = get_type_hints(kind, include_extras=True)
            for field in fields(kind):
                if field.init and field.name not in TRAINER:
                    self.defaults[field.name] = field.default
                    self.hints[field.name] = hints[field.name]

    @staticmethod
    def _parse_dataclass_field(parser: Any, field: Field) -> None:
        if field.name not in TRAINER:
            field = copy(field)
            theirs = {key: value for key, value in field.metadata.items() if key != "facts"}
            field.metadata = MappingProxyType(theirs)  # arguments of argparse
            HfArgumentParser._parse_dataclass_field(parser, field)

    def values(self, words: Sequence[str]) -> dict[str, Any]:
        """The values of the flags among these words, by name; `auto` as it stands."""
        refuse_tokens(words)
        for action in self._actions:
            action.default = SUPPRESS
        values = vars(self.parse_args(words))
        values.pop("config", None)
        return values

    def of_file(self, name: str, value: Any) -> Any:
        """The value of a key in a configuration file, parsed like a flag."""
        if name == "method" and self.script == STAGE_ONE:
            raise BadInput(f"a configuration of {script_of(str(value))}")
        if name not in self.hints:
            raise BadInput(f"unknown key '{name}'; {self.instead(name)}")
        single = self._option_string_actions[f"--{name}"].nargs != "+"
        if single and isinstance(value, list) and len(value) > 1:
            raise BadInput(f"'{name}' takes one value, not {len(value)}")
        return self.values(words_of({name: value}))[name]

    def typed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values from Python, checked."""
        refuse_tokens(words_of(values))
        found = {}
        for name, value in values.items():
            if name not in self.hints:
                raise BadInput(f"unknown argument '{name}'; {self.instead(name)}")
            single = get_origin(self.hints[name]) is list and not isinstance(value, list)
            found[name] = [value] if single else value
            if not (name in AUTOMATIC and value == "auto"):
                check_type(f"--{name}", found[name], self.hints[name])
        return found


def _print_help(script: str, words: Sequence[str], description: str) -> None:
    method, config = _method_and_files(words)
    method = method or method_of(config)
    if script != STAGE_ONE:
        description += f"\nmethods: {', '.join(method_names())}; --method NAME --help shows the "
        description += "flags of one"
    known = None if script == STAGE_ONE or method is None else load_method(method, script)
    SettingsParser(script, known, description, "--help_all" in words).print_help()


def _method_and_files(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """What decides which other flags there are: `--method` and `--config`."""
    first = Parser(add_help=False)
    first.add_argument("--method")
    first.add_argument("--config", nargs="+", default=[])
    found, _ = first.parse_known_args(words)
    return found.method, found.config


def _opened(
    script: str, method: str | None, config: Sequence[str]
) -> tuple[SettingsParser, dict[str, tuple[Any, str]]]:
    """The parser of a script and its method, and the files' values with the file of each."""
    merged = with_sources(config)
    if script != STAGE_ONE and method is None:
        method, _ = merged.get("method", (None, ""))
        if config and method is None:
            files = ", ".join(map(str, config))
            raise BadInput(f"{files}: no method: run it with {STAGE_ONE}, or give --method")
        check_type("method", method, str | None)
    loaded = None if script == STAGE_ONE else load_method(method, script)
    parser = SettingsParser(script, loaded)
    values: dict[str, tuple[Any, str]] = {}
    for name, (value, path) in merged.items():
        try:
            values[name] = parser.of_file(name, value), path
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from None
    return parser, values


def _settled(
    parser: SettingsParser, file: Mapping[str, tuple[Any, str]], flags: Mapping[str, Any]
) -> Settings:
    """The settings of the files' values and those given in the command or in Python."""
    merged = over(file, {name: (value, "flag") for name, value in flags.items()})
    given = {name: value for name, (value, _) in merged.items()}
    sources = {name: source for name, (_, source) in merged.items()}
    chosen = {}
    for name, choose in AUTOMATIC.items():
        if name in parser.hints and given.get(name, parser.defaults[name]) == "auto":
            given[name], reason = choose(given)
            sources.setdefault(name, "auto")
            chosen[name] = f"{word_of(given[name])} ({reason})"
    for name, value in given.items():
        check_range(f"--{name}", value, parser.hints[name])
        needed, other = FACTS.get(name, {}).get("needs"), _IDLE.get(name)
        if value and needed and not given.get(needed, parser.defaults[needed]):
            raise BadInput(f"--{name}: does nothing without --{needed}")
        if value and other and given.get(other):
            raise BadInput(f"--{name}: does nothing beside --{other}")
    groups = _built(parser.kinds, given)
    if parser.method is None:
        groups.insert(1, None)  # its arguments
    return Settings(parser.script, parser.method, given, sources, chosen, *groups)


def _built(kinds: Sequence[type], given: Mapping[str, Any]) -> list[Any]:
    """One instance of each dataclass."""
    built = []
    for kind in kinds:
        own = {f.name: given[f.name] for f in fields(kind) if f.name in given}
        try:
            built.append(kind(**own))
        except (ValueError, ImportError, OSError) as error:  # transformers checks its own values
            raise BadInput(brief(error)) from error
    return built


def _use_cpu(given: Mapping[str, Any]) -> tuple[bool, str]:
    if torch.cuda.is_available():
        return False, "there is a GPU"
    return True, "there is no CUDA GPU"


def _bf16(given: Mapping[str, Any]) -> tuple[bool, str]:
    if given["use_cpu"]:
        able, where = bf16_here("cpu"), "the processor"
    elif torch.cuda.is_available():
        able, where = bf16_here("cuda"), "the GPU"
    else:
        return False, "there is no CUDA GPU; with --use_cpu auto the processor decides"
    return able, f"{where} {'supports' if able else 'does not support'} it"


def _skip_from(given: Mapping[str, Any]) -> tuple[int, str]:
    model = given.get("model_name_or_path") or given.get("config_name")
    if model is None:
        raise BadInput(
            "--skip_from auto: depends on the model; give --model_name_or_path or --config_name"
        )
    config = load_config(model)
    if hasattr(config, "skip_from"):
        return config.skip_from, "the layer used in stage 1"
    layers = config.num_hidden_layers
    return layers // 2, f"half of {layers} layers, as 6 of 12 in InfoCSE 3.1"


# Values of `auto`, with their reasons; bf16 depends on the device and comes after it.
AUTOMATIC: dict[str, Callable[[Mapping[str, Any]], tuple[Any, str]]] = {
    "use_cpu": _use_cpu,
    "bf16": _bf16,
    "skip_from": _skip_from,
}


def _or_auto(kind: Any) -> Callable[[str], Any]:
    @wraps(kind)
    def parsed(text: str) -> Any:
        return text if text == "auto" else kind(text)

    return parsed
