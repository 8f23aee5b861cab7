"""Command lines as dataclasses: a YAML file gives defaults, flags override them.

Values in the file are read as strings and parsed like flags, so `3e-5` is a number, `no` is a string, and an error
about a wrong type names the flag. A flag also replaces the alternatives to it that the file names.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from common.errors import BadInput, refuse_tokens
from common.files import read_yaml
from common.flags import Parser, refuse_repeated, underscored
from common.model_place import nearest
from common.ranges import check_range

Hint = Callable[[str, Iterable[str]], str]
_REPLACED = {  # keys of a configuration that a flag on the command line excludes
    "train_file": {"dataset_name", "dataset_config_name", "dataset_split"},
    "dataset_name": {"train_file"},
    "model_name_or_path": {"config_name", "vocabulary_size"},
    "config_name": {"model_name_or_path"},
    "dev": {"dev_file", "dev_beir"},
    "dev_file": {"dev", "dev_beir"},
    "dev_beir": {"dev", "dev_file"},
}


def parse(
    argv: Sequence[str],
    types: Sequence[type],
    choose: Callable[[list[str]], list[str]] = list,
) -> tuple[Any, ...]:
    """Parse a command line into one instance of each dataclass; `--config FILE` gives the defaults.

    Args:
        argv: the arguments.
        types: the dataclasses.
        choose: rewrites the merged arguments before parsing, see `training.automatic`.

    Raises:
        BadInput: an unknown flag or key, a value of the wrong type or out of range, a file that is not a flat YAML
            mapping.
    """
    from transformers import HfArgumentParser  # slow: callers check flag names before they get here

    known = {f.name: str(f.type) for kind in types for f in fields(kind) if f.init}
    words = choose(check_words(argv, known))
    parser = type("_Parser", (Parser, HfArgumentParser), {})(types)
    try:
        *parsed, unknown = parser.parse_args_into_dataclasses(
            words, look_for_args_file=False, return_remaining_strings=True
        )
    except (ValueError, ImportError) as error:  # TrainingArguments checks its own values
        raise BadInput(str(error)) from error
    if unknown:
        raise BadInput(f"unknown argument '{unknown[0]}'; --help lists the flags")
    for group in parsed:
        _refuse_values(group)
    return tuple(parsed)


def check_words(argv: Sequence[str], known: Mapping[str, str], hint: Hint = lambda name, known: "") -> list[str]:
    """Merge the configuration file into the command line: the file's flags first, every name checked.

    Args:
        argv: the arguments.
        known: the type of every flag, as written in its dataclass.
        hint: returns advice for an unknown flag name, or an empty string.

    Raises:
        BadInput: a flag or key that is unknown or given twice, or a file that is not a flat YAML mapping.
    """
    refuse_repeated(argv)
    config, flags = split_flag(argv, "config")
    defaults = config_flags(config, known, hint, _names(flags)) if config else []
    refuse_tokens([*defaults, *flags])
    switches = {f"no_{name}" for name, kind in known.items() if kind in ("bool", "<class 'bool'>")}
    for word in underscored(flags):
        name = word[2:].split("=")[0]
        if word.startswith("--") and name and name not in {*known, *switches}:
            raise BadInput(f"unknown argument '{word}'; {_advice(name, known, hint) or '--help lists the flags'}")
    return [*defaults, *map(_at_home, flags)]


def _names(flags: Sequence[str]) -> set[str]:
    return {word[2:].split("=")[0] for word in underscored(flags) if word.startswith("--")}


def _at_home(word: str) -> str:
    """Expand `~` in a value, which the shell does only at the beginning of a word."""
    name, equals, value = word.rpartition("=") if word.startswith("--") else ("", "", word)
    return f"{name}{equals}{Path(value).expanduser()}" if value.startswith("~/") else word


def _advice(name: str, known: Mapping[str, str], hint: Hint) -> str:
    matches = difflib.get_close_matches(name, known, n=1)
    return hint(name, known) or (f"did you mean '--{matches[0]}'?" if matches else "")


def _refuse_values(group: Any) -> None:
    hints = get_type_hints(type(group), include_extras=True)
    for name in (f.name for f in fields(group) if f.init):
        check_range(name, getattr(group, name), hints[name])


def peek(argv: Sequence[str], name: str) -> str | None:
    """Read one flag before all flags are known: from the command line, else from the configuration file."""
    config, flags = split_flag(argv, "config")
    default = _overridden(config, _names(flags)).get(name) if config else None
    if isinstance(default, list):
        raise BadInput(f"{config}: '{name}' takes one value, not {default}")
    given, _ = split_flag(flags, name)
    return default if given is None else _at_home(given)


def split_flag(argv: Sequence[str], name: str) -> tuple[str | None, list[str]]:
    """Return one flag's value and the remaining arguments."""
    finder = Parser(add_help=False)
    finder.add_argument(f"--{name}")
    found, rest = finder.parse_known_args(list(argv))
    return vars(found)[name], rest


def config_flags(
    path: str, known: Mapping[str, str], hint: Hint = lambda name, known: "", given: Collection[str] = ()
) -> list[str]:
    """Convert a configuration file to flags, without those that the `given` ones replace.

    Arguments as in `check_words`; BadInput with advice for an unknown key.
    """
    flags: list[str] = []
    for key, value in _overridden(path, given).items():
        if key not in known:
            advice = _advice(key, known, hint).replace("--", "")
            raise BadInput(f"{path}: unknown key '{key}'" + (f"; {advice}" if advice else ""))
        if isinstance(value, list) and ("list" not in known[key] or any(part.startswith("--") for part in value)):
            raise BadInput(f"{path}: '{key}' takes {'words' if 'list' in known[key] else 'one value'}, not {value}")
        flags += [f"--{key}", *value] if isinstance(value, list) else [f"--{key}={value}"]
    return flags


def _overridden(path: str, given: Collection[str]) -> dict[str, str | list[str]]:
    """Read a configuration without the keys that exclude one of the `given` flags."""
    replaced = {key for name in given for key in _REPLACED.get(name, ())} - {*given}
    return {key: value for key, value in read_config(path).items() if key not in replaced}


def read_config(path: str) -> dict[str, str | list[str]]:
    """Read a flat YAML mapping; every scalar stays the string in the file."""
    with suppress(OSError):  # a name that is too long: `read_yaml` reports it
        if not Path(path).exists():
            near = nearest(Path(path), "*.y*ml")
            advice = f"did you mean '{near}'?" if near else "see configs/ for the ones in this repository"
            raise BadInput(f"--config {path}: cannot be read (no such file); {advice}")
    content = read_yaml(Path(path), strings=True)
    if not isinstance(content, dict):
        raise BadInput(f"{path}: must be a YAML mapping with one `flag: value` per line")
    for key, value in content.items():
        parts = value if isinstance(value, list) else [value]
        if not parts or not all(isinstance(part, str) and part for part in parts):
            advice = "quote a JSON object" if isinstance(value, dict) else "omit the key for the default"
            raise BadInput(f"{path}: '{key}' needs a value or a list of values; {advice}")
    return {
        key: [*map(_at_home, value)] if isinstance(value, list) else _at_home(value) for key, value in content.items()
    }
