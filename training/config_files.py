"""Configuration files: YAML mappings of flags to values, several of which combine."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping, Sequence
from enum import Enum
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from common.errors import BadInput
from common.files import read_yaml
from common.flags import nearest
from training.run_arguments import FACTS


def read_config(*paths: str | Path) -> dict[str, Any]:
    """The values of configuration files by name, later files win; every scalar stays a string.

    In a later file a key without a value is the default again, and what stands under the name of
    files beside it, which may have a `*`, counts behind such a file alone.

    Raises:
        BadInput: a file cannot be read or is something else.
    """
    return {name: value for name, (value, _) in with_sources(paths).items()}


def with_sources(paths: Sequence[str | Path]) -> dict[str, tuple[Any, str]]:
    """As `read_config`, with the file of each value."""
    merged: dict[str, tuple[Any, str]] = {}
    for number, path in enumerate(paths):
        earlier = [Path(name).stem for name in paths[:number]]
        content = _content(Path(path), earlier)
        merged = over(merged, {name: (value, str(path)) for name, value in content.items()})
    return {name: pair for name, pair in merged.items() if pair[0] is not None}


def over(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Both, where a later value replaces an earlier one and its alternatives.

    One that unsets its flag (a key without a value, `--max_steps -1`) replaces that flag alone.
    """
    replaced: set[str] = set()
    for name, value in later.items():
        word = value[0] if isinstance(value, tuple) else value  # with its source
        if word not in (None, "", -1, "-1"):
            replaced |= _replaced_by(name)
    kept = {name: value for name, value in earlier.items() if name not in replaced}
    return {**kept, **later}


def _replaced_by(name: str) -> set[str]:
    """The alternatives to a flag, and the flags that do nothing without those."""
    first = FACTS.get(name, {}).get("instead_of") or name
    others = {other for other, facts in FACTS.items() if facts["instead_of"] == first}
    others = (others | {first}) - {name}
    return others | {other for other, facts in FACTS.items() if facts["needs"] in others}


def words_of(values: Mapping[str, Any]) -> list[str]:
    """The command line that gives these values."""
    words = []
    for name, value in values.items():
        parts = [word_of(part) for part in (value if isinstance(value, (list, tuple)) else [value])]
        words += [f"--{name}={parts[0]}"] if len(parts) == 1 else [f"--{name}", *parts]
    return words


def word_of(value: Any) -> str:
    """A value as a flag has it."""
    value = plain(value)
    return json.dumps(value) if isinstance(value, (bool, dict)) else str(value)


def plain(value: Any) -> Any:
    """A value from Python as flags have it: enumerations and paths as words, no NumPy or tuples."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, np.floating):
        return float(str(value))  # 3e-5, not the nearest number of its type
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value


def _content(path: Path, earlier: Sequence[str]) -> dict[str, Any]:
    """The words of a file behind files of these names; None for a key without a value."""
    if not path.exists():
        guess = nearest(path.stem, [file.stem for file in path.parent.glob("*.yaml")])
        raise BadInput(f"{path}: there is no such file; {guess}".rstrip("; "))
    content = read_yaml(path, strings=True)
    if not isinstance(content, dict):
        raise BadInput(f"{path}: must be a YAML mapping with one `flag: value` per line")
    files = [file.stem for file in path.parent.glob("*.yaml")]
    sections = {name for name in content if "-" in name and fnmatch.filter(files, name)}
    own = {name: value for name, value in content.items() if name not in sections}
    for name in content:
        if name in sections and fnmatch.filter(earlier, name):
            own = over(own, content[name])
    return {name: _value(path, name, value, bool(earlier)) for name, value in own.items()}


def _value(path: Path, name: str, value: Any, later: bool) -> Any:
    if value in ("null", "Null", "NULL", "~"):  # words here, as all scalars
        value = ""
    if value == "" and later:
        return None
    parts = [*value.values()] if isinstance(value, dict) else value
    parts = parts if isinstance(parts, list) else [parts]
    if not parts or not all(isinstance(part, str) and part for part in parts):
        said = "needs a value or a list of values; omit the key for the default"
        raise BadInput(f"{path}: '{name}' {said}")
    return {key: _number(part) for key, part in value.items()} if isinstance(value, dict) else value


def _number(word: str) -> Any:
    """A word of a mapping as JSON has it."""
    try:
        return json.loads(word)
    except ValueError:
        return word
