"""The errors a user can see, each with its exit code.

A command prints `error: <message>` on one line and exits with the code; any other exception is a
bug and keeps its traceback.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from common.memory import keep_freed_memory
from common.signals import STOPPING, Stopped
from common.streams import visible

_TOKEN = re.compile(r"hf_(?:[A-Za-z0-9]{30}|(?:oauth|jwt)_[\w.-]{20})")


_TORCH_WRITER = re.compile(r"inline_container|PytorchStreamWriter|iostream error")
_CODE = re.compile(r"(?:os error |\[Errno )([0-9]+)")  # of safetensors; of `shutil.copytree`


class ProjectError(Exception):
    """Base of all expected errors; the message says what is wrong, where, and what to do.

    The message is always one line: line breaks become spaces, control and invisible characters
    become escapes.
    """

    exit_code = 1

    def __init__(self, message: str) -> None:
        line = re.sub(r"\s*[\r\n]\s*", " ", message)
        shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
        super().__init__("".join(shown))


class BadInput(ProjectError):
    """Unusable input or configuration: a file, a line, a flag."""

    exit_code = 2


class NonFinite(ProjectError):
    """A loss, score or weight that is not finite."""

    exit_code = 3


class StorageError(ProjectError):
    """A full, read-only or failing disk, or too little memory."""

    exit_code = 4


class CheckpointRefused(ProjectError):
    """A run folder or checkpoint that does not belong to, or cannot continue, this run."""

    exit_code = 5


class FolderInUse(CheckpointRefused):
    """Another command is working in this folder."""


DISK = {
    errno.ENOSPC: "No space left on the device",
    errno.EDQUOT: "No space left: the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EFBIG: "the file is larger than this process may write (ulimit -f)",
    errno.EIO: "the device reports an input/output error",
}  # the disk is at fault, not the path


_NAMED = {
    errno.ENAMETOOLONG,
    errno.EACCES,
    errno.EPERM,
}  # the names that the user gave are at fault


def unwritable(error: OSError, message: str) -> ProjectError:
    """Return the error for a failed write: StorageError if the disk is at fault, else BadInput."""
    return (StorageError if error.errno in DISK else BadInput)(message)


@contextmanager
def storage_errors(folder: str | Path) -> Iterator[None]:
    """Turn disk errors of the system, torch and safetensors into a StorageError; other errors pass.

    Args:
        folder: where the block writes; named when the error names no file.
    """
    try:
        yield
    except ProjectError:  # its message may contain a number that looks like an error code
        raise
    except Exception as error:
        message = _storage_message(error)
        if message is None:
            raise
        path = getattr(error, "filename", None) or folder
        advice = "everything saved before is intact. Free some space and repeat the command"
        raise StorageError(f"{path}: {message}; {advice}") from error


def _storage_message(error: Exception) -> str | None:
    if isinstance(error, OSError) and error.errno is not None:
        return DISK.get(error.errno)
    if code := _CODE.search(str(error)):
        return DISK.get(int(code[1]))
    if isinstance(error, RuntimeError) and _TORCH_WRITER.search(str(error)):  # which gives no cause
        return "a file could not be written completely; is there no space left?"
    return None


def newer_format(what: str, version: int, known: int) -> str:
    """Return the message for a file in a newer format, which this version would misread."""
    return (
        f"{what} has format {version}, but this version reads {known}; update to the version that "
        "wrote it"
    )


def brief(error: BaseException) -> str:
    """Return an error's message on one line of at most 300 characters, or its type if it has none."""
    return " ".join(str(error).split())[:300] or type(error).__name__


_PROGRAM = vars(
    sys.modules["__main__"]
)  # not a script that this process runs by `runpy`, as the tests do


def run_command(main: Callable[[], object]) -> None:
    """Call `main`; an expected error becomes one line and an exit code.

    Called by the program itself, this ends the process.
    """
    is_program, code = sys._getframe(1).f_globals is _PROGRAM, 0
    try:
        _run(main)
    except SystemExit as end:
        code = end.code or 0
        if not is_program or not isinstance(code, int):
            raise
    if is_program:
        _leave(code)


def _leave(code: int) -> None:
    """End the process: threads of pyarrow and gloo can abort the interpreter's own end."""
    # this and the next are what Python does first; multiprocessing ends its processes so, too
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


class _Messages(logging.StreamHandler):
    """Messages on stderr, above the progress bars; names in them come from files."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record), "\n\t")

    def emit(self, record: logging.LogRecord) -> None:
        with tqdm.external_write_mode(self.stream):
            super().emit(record)


def _run(main: Callable[[], object]) -> None:
    keep_freed_memory()
    if (
        sys.stdout and sys.stdout.errors == "strict"
    ):  # the terminal's encoding may lack a character of a name
        sys.stdout.reconfigure(errors="backslashreplace")
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[_Messages()])
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # a line for every request to the hub
    try:
        _refuse_empty(sys.argv[1:])
        refuse_tokens(sys.argv[1:])
        with STOPPING.handled():  # so that what a command cleans up at its end is cleaned up
            main()
    except ProjectError as error:
        _exit(f"error: {error}", error.exit_code)
    except BrokenPipeError:  # the reader of the output has gone, as `| head -1` does
        sys.exit(1)
    except OSError as error:
        if error.errno not in DISK and not (error.errno in _NAMED and error.filename):
            raise
        expected = unwritable(error, str(error))
        _exit(f"error: {expected}", expected.exit_code)
    except Stopped as stop:
        _exit(str(stop), stop.exit_code)


def _refuse_empty(words: Sequence[str]) -> None:
    """Raise BadInput for an empty argument, which would mean this folder; a prompt may be empty."""
    for before, word in zip(["the first argument", *words], words, strict=False):
        name = word.removesuffix("=") or before
        if (not word or (word.startswith("--") and word.endswith("="))) and not name.endswith(
            "_prompt"
        ):
            raise BadInput(f"{name}: the value is empty; is a shell variable unset?")


def refuse_tokens(words: Sequence[str]) -> None:
    """Raise BadInput for what looks like a hub token: arguments are recorded and printed."""
    for before, word in zip(["", *words], words, strict=False):
        if _TOKEN.search(word):
            flag = next(
                (part.partition("=")[0] for part in (word, before) if part.startswith("--")), ""
            )
            flag = "an argument" if not flag or _TOKEN.search(flag) else flag
            raise BadInput(
                f"{flag}: looks like a hub token and would be recorded; set HF_TOKEN instead"
            )


def _exit(line: str, code: int) -> NoReturn:
    """Close the progress bars, print one line and exit."""
    for bar in list(getattr(tqdm, "_instances", ())):
        bar.close()
    sys.stderr.write(f"{line}\n")
    sys.exit(code)
