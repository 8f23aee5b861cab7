"""Whether a finished run is the one this command would train: its settings, and what its text and models hold now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from common.command_line import parse, peek
from common.errors import BadInput, CheckpointRefused
from common.files import find_files
from data.text import content_hash
from training.provenance import contents
from training.registry import argument_groups, load_method, script_of
from training.run import Run
from training.run_arguments import RunArguments


def check_run(folder: Path, record: Mapping[str, Any], argv: Sequence[str]) -> None:
    """A folder's name holds paths and flags; here defaults, the configuration and the files' content are compared.

    Text and models that are no longer there are not compared: a run may outlive them.

    Raises:
        CheckpointRefused: the run has other settings, or what it read has changed since.
    """
    name = peek(argv, "method")
    groups = parse(argv, argument_groups(load_method(name)), "")
    old, new = dict(record["trajectory"]), Run(script_of(name), argv, groups, {}).trajectory
    names = sorted((old.keys() & new.keys()) - {"use_cpu"})  # a run of another machine is a run all the same
    changed = [f"{n}: {old[n]} there, {new[n]} now" for n in names if old[n] != new[n]]
    changed += _changed_text(old.get("text", {}), *groups[2:]) + _changed_models(old, vars(groups[0]) | vars(groups[1]))
    _refuse(folder, changed)


def check_model(folder: Path, record: Mapping[str, Any], model: str) -> None:
    """The same of a model that is evaluated as it is."""
    _refuse(folder, _changed_models(record["trajectory"], {"model_name_or_path": model}))


def _changed_text(old: Mapping[str, Any], data_args: Any, args: RunArguments) -> list[str]:
    try:
        files = find_files(data_args.train_file, data_args.data_dir, (data_args.cache_dir, args.output_dir))
    except BadInput:
        return []
    now = _text_hash(tuple(files))
    return [f"text: sha256 {old['sha256']} there, {now} now"] if old.get("sha256", now) != now else []


def _changed_models(old: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    changed = []
    for name, files in old.get("contents", {}).items():
        now = model_files(settings.get(name))
        changed += [f"{name}: {settings[name]} holds other files"] if now and now != files else []
    return changed


@cache
def _text_hash(files: tuple[Path, ...]) -> str:
    return content_hash(files)


@cache
def model_files(path: str | None) -> dict[str, str]:
    """sha256 of the files of a local model folder; nothing of a name on the hub. Read once a command."""
    return contents({"": path}).get("", {})


def _refuse(folder: Path, changed: list[str]) -> None:
    if changed:
        raise CheckpointRefused(f"{folder} holds a finished run of other settings ({'; '.join(changed)}); move it away")
