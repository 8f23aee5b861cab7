"""The errors a user can see, each with its exit code.

A command prints `error: <message>` on one line and exits with the code; any other exception is a
bug and keeps its traceback.
"""

from __future__ import annotations

import atexit
import errno
import gc
import io
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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


DISK = {  # the disk is at fault, not the path
    errno.ENOSPC: "No space left on the device",
    errno.EDQUOT: "No space left: the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EFBIG: "the file is larger than this process may write (ulimit -f)",
    errno.EIO: "the device reports an input/output error",
}


# The names that the user gave are at fault.
_NAMED = {errno.ENAMETOOLONG, errno.EACCES, errno.EPERM}


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
    """Return an error's message on one line of at most 300 characters; without one, its type."""
    return " ".join(str(error).split())[:300] or type(error).__name__


class _Messages(logging.StreamHandler):
    """Messages on stderr, above the progress bars; names in them come from files."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record), "\n\t")

    def emit(self, record: logging.LogRecord) -> None:
        with tqdm.external_write_mode(self.stream):
            super().emit(record)


def run_command(main: Callable[[], object]) -> None:
    """Call `main`; an expected error becomes one line and an exit code."""
    keep_freed_memory()
    # Looking for cycles in all that is imported, at every 700 objects and at the end, would take a
    # third of a second and a second.
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)
    # The terminal's encoding may lack a character of a name.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[_Messages()])
    # It has a handler of its own, which would write every line a second time.
    logging.getLogger("huggingface_hub").propagate = False
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
        name, equals, value = word.partition("=")
        if not word:
            name = before
        elif not name.startswith("--") or not equals or value:
            continue
        if not name.endswith("_prompt"):
            raise BadInput(f"{name}: the value is empty; is a shell variable unset?")


def refuse_tokens(words: Sequence[str]) -> None:
    """Raise BadInput for what looks like a hub token: arguments are recorded and printed."""
    for before, word in zip(["", *words], words, strict=False):
        if _TOKEN.search(word):
            flag = word.partition("=")[0] if word.startswith("--") else before
            if not flag.startswith("--") or _TOKEN.search(flag):
                flag = "an argument"
            raise BadInput(
                f"{flag}: looks like a hub token and would be recorded; set HF_TOKEN instead"
            )


def _exit(line: str, code: int) -> NoReturn:
    """Close the progress bars, print one line and exit."""
    for bar in list(getattr(tqdm, "_instances", ())):
        bar.close()
    sys.stderr.write(f"{line}\n")
    sys.exit(code)
