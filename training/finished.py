"""Recognise a finished run by its command and input files, before torch is imported."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

from common.arguments import DataArguments
from common.declared import Flag
from common.files import digest, matching
from common.flags import underscored
from training.record import RUN_FILE, check_result, read_run

logger = logging.getLogger(__name__)
_NOT_INPUTS = {"output_dir", "cache_dir", "data_dir"}  # folders that a run writes to, or reads only in part
_MAX_FILES = 10_000  # checking more takes seconds
_DEFAULT_DEV = "senteval"  # below data_dir: read if no flag names a dev task


def inputs_of(words: Sequence[str], flags: Mapping[str, Flag]) -> str | None:
    """A hash of a run's inputs: its flags, their defaults, and size, times and inode of every file they name.

    Args:
        words: the flags of the configuration file and command line.
        flags: all flags of the script.

    Returns:
        None if the flags do not determine the run (a hub data set, several processes), or name too many files.
    """
    given = list(_values(words))
    if "WORLD_SIZE" in os.environ or "dataset_name" in dict(given):
        return None
    data_dir = dict(given).get("data_dir", DataArguments().data_dir)  # the last one counts: the command line's
    named = [value for name, value in given if name not in _NOT_INPUTS]
    below = [f"{data_dir}/{value}" for value in [*named, _DEFAULT_DEV]]
    try:
        files = {str(path): _state(path) for path in _files([*named, *below])}
    except OSError:  # too many, or removed meanwhile
        return None
    defaults = {name: (flag.kind, flag.default) for name, flag in flags.items()}
    launcher = sorted(item for item in os.environ.items() if item[0].startswith("ACCELERATE_"))
    return digest([list(words), defaults, launcher, files])


def _values(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    name = ""
    for word in underscored(words):
        value = word
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
        if value:
            yield name, value


def _files(names: Iterable[str]) -> list[Path]:
    """The files that these paths and patterns match, folders searched recursively."""
    matches = {path for name in names for path in matching(Path(name))}
    paths = list(islice(chain.from_iterable(map(_below, matches)), _MAX_FILES + 1))
    if len(paths) > _MAX_FILES:
        raise OSError("too many files")
    return sorted({path for path in paths if path.is_file()})


def _below(path: Path) -> Iterator[Path]:
    """A path and, for a folder, everything below it, following links as the readers of text and models do."""
    yield path
    for folder, *names in os.walk(path, followlinks=True):
        yield from (Path(folder, name) for name in chain(*names))


def _state(path: Path) -> tuple[int, ...]:
    """Values that change when a file is written."""
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def finished(folder: str | None, inputs: str | None) -> bool:
    """Whether a folder contains the finished run of these inputs, result intact; False if undecided.

    Raises:
        CheckpointRefused: the result has changed since the run wrote it, or its record cannot be read.
    """
    if inputs is None or folder is None:
        return False
    try:
        run = read_run(Path(folder)) if (Path(folder) / RUN_FILE).is_file() else {}
    except OSError:  # not a valid folder name; reported later
        return False
    if run.get("status") != "finished" or run.get("inputs") != inputs:
        return False
    check_result(Path(folder), run)
    logger.info("%s: already finished; nothing to do", folder)
    return True
