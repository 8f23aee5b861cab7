"""The errors a user can meet, each with its exit code.

A command prints `error: <message>` on one line and exits with the code; any other exception is a bug and keeps its
traceback.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from common.streams import lasting

_TOKEN = re.compile(r"hf_[A-Za-z0-9]{30}")


class ProjectError(Exception):
    """Base of all expected errors; the message says what, where, and what to do.

    The message is always one line: line ends become spaces, control and invisible characters become escapes.
    """

    exit_code = 1

    def __init__(self, message: str) -> None:
        line = re.sub(r"\s*[\r\n]\s*", " ", message)
        shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
        super().__init__("".join(shown))


class BadInput(ProjectError):
    """Input or configuration that cannot be used: a file, a line, a flag."""

    exit_code = 2


class NonFinite(ProjectError):
    """A loss, a score or a weight that is not a finite number."""

    exit_code = 3


class StorageError(ProjectError):
    """A disk that is full, read-only or failing, or too little memory."""

    exit_code = 4


class CheckpointRefused(ProjectError):
    """A run folder or checkpoint that does not belong to, or cannot continue, this run."""

    exit_code = 5


DISK = {
    errno.ENOSPC: "No space left on the device",
    errno.EDQUOT: "No space left: the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EFBIG: "the file is larger than this process may write (ulimit -f)",
    errno.EIO: "the device reports an input/output error",
}  # faults of the disk, not of the path


def unwritable(error: OSError, message: str) -> ProjectError:
    """The error for a failed write: StorageError when the disk is at fault, BadInput when the path is."""
    return (StorageError if error.errno in DISK else BadInput)(message)


def newer_format(what: str, found: int, known: int) -> str:
    """The message for a file of a newer format, which this version would misread."""
    return f"{what} has format {found}, and this version reads {known}; update to the version that wrote it"


def first_line(error: Exception) -> str:
    """The first line of what an error says, or its type where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


class Stopped(KeyboardInterrupt):
    """A signal ended the command; running it again resumes. Not a ProjectError: libraries swallow those."""

    exit_code = 75


_AROUND = 100  # characters shown on both sides of what is not UTF-8


def run_command(main: Callable[[], object]) -> None:
    """Call `main`; an expected error becomes one line and an exit code. Closed output does not end the command."""
    code = None
    try:
        _run(main)
        code = 0
    except SystemExit as end:
        code = end.code or 0
        raise
    finally:
        if isinstance(code, int) and sys._getframe(1).f_globals.get("__name__") == "__main__":
            _leaving.append(code)


_leaving: list[int] = []  # exit codes of this process's command


@atexit.register  # on import, before any library: so it runs behind the libraries' own clean-up
def _leave() -> None:
    """End here: threads of pyarrow and gloo can abort the interpreter's own end, after all is done."""
    if _leaving:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(_leaving[-1])


def _run(main: Callable[[], object]) -> None:
    with lasting():
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
        try:
            _check_arguments(sys.argv[1:])
            refuse_tokens(sys.argv[1:])
            main()
        except ProjectError as error:
            _exit(f"error: {error}", error.exit_code)
        except OSError as error:
            if error.errno not in (*DISK, errno.ENAMETOOLONG):  # only a user gives names that are too long
                raise
            found = unwritable(error, str(error))
            _exit(f"error: {found}", found.exit_code)
        except UnicodeEncodeError as error:  # a name on the disk, above or below the folders that were given
            if error.reason != "surrogates not allowed":
                raise
            _exit(f"error: {_not_utf8(error)}", BadInput.exit_code)
        except Stopped as stop:
            _exit(str(stop), stop.exit_code)


def _check_arguments(argv: Sequence[str]) -> None:
    """Refuse arguments that no command can use.

    Raises:
        BadInput: an empty argument, which could mean this folder, no file or the default; one that is not UTF-8, which
            records and saved models need.
    """
    for before, word in zip(["the first argument", *argv], argv, strict=False):
        if not word or (word.startswith("--") and word.endswith("=")):
            raise BadInput(
                f"{word.rstrip('=') or before}: is followed by nothing; was a variable of the shell not set?"
            )
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise _not_utf8(error) from error


def _not_utf8(error: UnicodeEncodeError) -> BadInput:
    around = error.object[max(error.start - _AROUND, 0) : error.end + _AROUND]
    return BadInput(f"'{around}': is not UTF-8; rename that file or folder")


def refuse_tokens(words: Sequence[str]) -> None:
    """BadInput for what looks like a token of the hub: arguments are recorded and printed."""
    for before, word in zip(["", *words], words, strict=False):
        if _TOKEN.search(word):
            flag = next((part.partition("=")[0] for part in (word, before) if part.startswith("--")), "")
            flag = "an argument" if not flag or _TOKEN.search(flag) else flag
            raise BadInput(f"{flag}: looks like a token of the hub, and would be written down; set HF_TOKEN instead")


def _exit(line: str, code: int) -> NoReturn:
    """Close the progress bars, print one line and exit."""
    for bar in list(getattr(tqdm, "_instances", ())):
        bar.close()
    sys.stderr.write(f"{line}\n")
    sys.exit(code)


def _check_working_directory() -> None:
    try:
        Path.cwd()
    except FileNotFoundError:
        sys.stderr.write("error: the working directory has been deleted; change to one that is there\n")
        sys.exit(BadInput.exit_code)


_check_working_directory()  # on import, before any library: torch and transformers abort without one
