"""Standard output and error that may disappear without ending the command.

A closed terminal, a reader that stops early (`| head -1`) or a full disk behind `>` must not end hours of work, and
libraries print too. So commands write through `Lasting`, which drops what cannot be written.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # a terminal obeys them; the last two end lines
_GONE = (errno.EPIPE, errno.EBADF)  # the reader is gone


class Lasting:
    """A text stream whose writes never fail: after the first error, output is dropped. All else is delegated.

    Attributes:
        failed: the first write error, or None.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failed: OSError | None = None
        if stream.errors == "strict":  # text may contain characters that the terminal's encoding lacks
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str):
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def writelines(self, lines) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, call) -> None:
        try:
            call()
        except OSError as error:
            self.failed = self.failed or error
            with Path(os.devnull).open("wb") as nowhere:  # receives buffered text and the output of child processes
                os.dup2(nowhere.fileno(), self._stream.fileno())


@contextmanager
def lasting() -> Iterator[None]:
    """Wrap standard output and error in `Lasting` while the block runs."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # fill closed standard streams: a file opened later under their number would receive printed text
    os.close(number)
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (Lasting(stream or Path(os.devnull).open("w", encoding="utf-8")) for stream in before)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def visible(text: str, kept: str = "") -> str:
    """Return text with its control characters as escapes, except the `kept` ones."""
    return _CONTROL.sub(lambda match: match[0] if match[0] in kept else ascii(match[0])[1:-1], text)


def show(text: str, kept: object = None) -> None:
    """Print a command's result.

    Args:
        text: without the final newline.
        kept: a file that also has the result, if any.

    Raises:
        OSError: standard output is a file that cannot be written, and no other file has the result.
    """
    sys.stdout.write(visible(f"{text}\n", "\n\t"))
    sys.stdout.flush()
    failed = getattr(sys.stdout, "failed", None)
    if failed and not kept and failed.errno not in _GONE:
        raise OSError(failed.errno, os.strerror(failed.errno), "standard output")
