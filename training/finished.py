"""A finished run is known by its command and by the files that it read, before torch is imported."""

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
_WRITTEN = {"output_dir", "cache_dir", "data_dir"}  # folders that a run writes, or finds others in
_MOST = 10_000  # files; to look at more takes seconds
_UNNAMED = "senteval"  # below data_dir: read where no flag names a dev task


def inputs_of(words: Sequence[str], flags: Mapping[str, Flag]) -> str | None:
    """A hash of what decides a run: its flags, their defaults, and size, times and inode of every file they name.

    Args:
        words: the flags of configuration file and command line.
        flags: all that the script has.

    Returns:
        None where the flags do not say it all (a data set of the hub, several processes), or name too many files.
    """
    given = list(_values(words))
    if "WORLD_SIZE" in os.environ or "dataset_name" in dict(given):
        return None
    data_dir = next((value for name, value in given if name == "data_dir"), DataArguments().data_dir)
    named = [value for name, value in given if name not in _WRITTEN]
    try:
        files = {str(path): _state(path) for path in _files([*named, *(f"{data_dir}/{v}" for v in [*named, _UNNAMED])])}
    except OSError:  # too many, or gone while they were looked at
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
    """The files that these paths and patterns name, those below a folder too."""
    found = {path for name in names for path in matching(Path(name))}
    seen = list(islice(chain.from_iterable(map(_below, found)), _MOST + 1))
    if len(seen) > _MOST:
        raise OSError("too many files")
    return sorted({path for path in seen if path.is_file()})


def _below(path: Path) -> Iterator[Path]:
    """A path and, of a folder, all in it, by links to other folders too, as text and models are read."""
    yield path
    for folder, *names in os.walk(path, followlinks=True):
        yield from (Path(folder, name) for name in chain(*names))


def _state(path: Path) -> tuple[int, ...]:
    """What changes when a file is written."""
    known = path.stat()
    return known.st_size, known.st_mtime_ns, known.st_ctime_ns, known.st_ino


def finished(folder: str | None, inputs: str | None) -> bool:
    """Whether a folder holds the finished run of these inputs, its result whole; False where more has to be looked at.

    Raises:
        CheckpointRefused: the result is not what the run wrote, or its record cannot be read.
    """
    if inputs is None or folder is None:
        return False
    try:
        run = read_run(Path(folder)) if (Path(folder) / RUN_FILE).is_file() else {}
    except OSError:  # no name for a folder, which is said later
        return False
    if run.get("status") != "finished" or run.get("inputs") != inputs:
        return False
    check_result(Path(folder), run)
    logger.info("%s: already finished; nothing to do", folder)
    return True
