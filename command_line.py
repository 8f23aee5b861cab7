"""Command lines: dataclasses, defaults from a YAML file, flags that win.

A configuration file is flags written down: its values are read as plain strings and converted by the very
parser that converts flags, so `3e-5` is a number, `no` is a word, and a wrong type is refused by name.
"""

from __future__ import annotations

import argparse
import difflib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from transformers import HfArgumentParser

from errors import BadInput, refuse_tokens
from files import refuse_special
from flags import Parser, underscored
from ranges import ranges_of


class _Parser(Parser, HfArgumentParser):
    """A flag for every field of dataclasses."""


def parse(
    argv: Sequence[str], types: Iterable[type], description: str, hint: Callable[[str], str] = lambda name: ""
) -> tuple[Any, ...]:
    """Command line -> one instance of each dataclass, `--config FILE` giving the defaults.

    Args:
        argv: the arguments.
        types: the dataclasses.
        description: of --help.
        hint: what else may be said of an unknown flag's name.

    Raises:
        BadInput: an unknown flag or key, a value of the wrong type or out of its range, a file that is not a flat YAML
            mapping.
    """
    parser = _Parser(types, description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--config", help="YAML file of flags; flags on the command line win")
    _refuse_repeated(argv)
    config, flags = split_config(argv)
    known = {f.name: str(f.type) for kind in types for f in fields(kind) if f.init}
    defaults = config_flags(config, known) if config else []
    refuse_tokens([*defaults, *flags])
    try:
        *parsed, _, unknown = parser.parse_args_into_dataclasses(
            [*defaults, *flags], look_for_args_file=False, return_remaining_strings=True
        )
    except (ValueError, ImportError) as error:  # TrainingArguments checks its own values
        raise BadInput(str(error)) from error
    if unknown:
        name = unknown[0].lstrip("-").split("=")[0]
        near = difflib.get_close_matches(name, known, n=1)
        said = hint(name) or (f"did you mean '--{near[0]}'?" if near else "--help lists all flags")
        raise BadInput(f"unknown argument '{unknown[0]}'; {said}")
    for group in parsed:
        _refuse_values(group)
    return tuple(parsed)


def _refuse_values(group: Any) -> None:
    """BadInput for a number that is not finite, or not in the range that its field's type says."""
    hints = get_type_hints(type(group), include_extras=True)
    for name in (f.name for f in fields(group) if f.init):
        value = getattr(group, name)
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, float) and not math.isfinite(number):
                raise BadInput(f"--{name} {number}: a finite number is needed")
            for allowed in ranges_of(hints[name]) if number is not None else ():
                if not allowed.holds(number):
                    raise BadInput(f"--{name} {number}: must be {allowed.words}")


def _refuse_repeated(argv: Sequence[str]) -> None:
    names = Counter(word.split("=")[0] for word in underscored(argv) if word.startswith("--"))
    for name, times in names.items():
        if times > 1:
            raise BadInput(f"{name}: is given twice; only the last would count (several values follow one flag)")


def peek(argv: Sequence[str], name: str) -> str | None:
    """One flag's value before all flags are known: from the command line, else from the configuration file."""
    config, flags = split_config(argv)
    finder = Parser(add_help=False)
    finder.add_argument(f"--{name}", default=read_config(config).get(name) if config else None)
    return vars(finder.parse_known_args(flags)[0])[name]


def split_config(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """The value of `--config`, and the other arguments; found first, because it decides what else is a flag."""
    return split_flag(argv, "config")


def split_flag(argv: Sequence[str], name: str) -> tuple[str | None, list[str]]:
    """One flag's value, and the arguments without it."""
    finder = Parser(add_help=False)
    finder.add_argument(f"--{name}")
    found, rest = finder.parse_known_args(list(argv))
    return vars(found)[name], rest


def config_flags(path: str, known: dict[str, str]) -> list[str]:
    """A configuration file as flags; BadInput for a key that is no flag, with the nearest known one.

    Args:
        path: the file.
        known: every flag and its type, as it is written.
    """
    flags: list[str] = []
    for key, value in read_config(path).items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            raise BadInput(f"{path}: unknown key '{key}'" + (f"; did you mean '{near[0]}'?" if near else ""))
        if isinstance(value, list) and ("list" not in known[key] or any(part.startswith("--") for part in value)):
            raise BadInput(f"{path}: '{key}' takes {'words' if 'list' in known[key] else 'one value'}, not {value}")
        flags += [f"--{key}", *value] if isinstance(value, list) else [f"--{key}={value}"]
    return flags


def read_config(path: str) -> dict[str, str | list[str]]:
    """A flat YAML mapping with every scalar as the string that is written there."""
    try:
        refuse_special(Path(path))  # a pipe gives its content once, and a configuration is read twice
        content = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Strings)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise BadInput(f"{path}: not a YAML file: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise BadInput(f"{path}: a mapping `key: value` is needed, one flag a line")
    for key, value in content.items():
        parts = value if isinstance(value, list) else [value]
        if not parts or not all(isinstance(part, str) and part for part in parts):
            raise BadInput(f"{path}: '{key}' needs a value or a list of values; leave the key out for the default")
    return content


class _Strings(yaml.BaseLoader):
    """YAML's BaseLoader (only strings, lists and mappings) that refuses a tag, and a key written twice."""

    def construct_object(self, node, deep=False):
        if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.rpartition(":")[2] not in ("str", "seq", "map"):
            raise yaml.constructor.ConstructorError(None, None, f"tag '{node.tag}'; values have none", node.start_mark)
        return super().construct_object(node, deep)

    def construct_mapping(self, node, deep=False):
        names: set[str] = set()
        for place, _ in node.value:
            key = self.construct_object(place, deep=True)
            if not isinstance(key, str) or key in names:
                raise yaml.constructor.ConstructorError(None, None, f"key '{key}' twice or no word", place.start_mark)
            names.add(key)
        return super().construct_mapping(node, deep)


def find_files(names: Sequence[str], data_dir: str, own: Sequence[str | Path] = ()) -> list[Path]:
    """Training files, each as given or below `data_dir`, a folder as `files_of`; BadInput names both places."""
    if not names:
        raise BadInput("--train_file is missing: the text to train on")
    found = []
    for name in names:
        places = [Path(name), Path(data_dir) / name]
        existing = [place for place in places if place.exists()]
        if not existing:
            raise BadInput(f"training file '{name}' is neither at {places[0]} nor at {places[1]}")
        found += files_of(existing[0], own)
    return found


def files_of(place: Path, own: Sequence[str | Path] = ()) -> list[Path]:
    """A file itself; of a folder, all files in it and its subfolders but hidden ones, in the order of their paths.

    Args:
        place: the file or folder.
        own: folders the command itself writes, left out too: they may lie in `place`, and would be text the next time.
    """
    if not place.is_dir():
        return [place]
    files = list(_below(place, {place.resolve()}, {Path(folder).resolve() for folder in own}))
    if not files:
        raise BadInput(f"{place}: the folder holds no files; name files, or a folder of them")
    return files


def _below(folder: Path, above: set[Path], own: set[Path]) -> Iterator[Path]:
    try:
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise BadInput(f"{folder}: the folder cannot be read ({error.strerror})") from error
    for path in paths:
        if not path.is_dir():  # also a broken link or a pipe: whoever opens it refuses it, and no text is missed
            yield path
        elif (real := path.resolve()) in above:
            raise BadInput(f"{path}: a link to a folder that it lies in; remove it")
        elif real not in own:
            yield from _below(path, above | {real}, own)
