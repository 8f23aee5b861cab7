"""Signals that ask a command to stop: now where nothing can be lost, else after the current optimizer step."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps

from common.errors import Stopped
from training.storage import storage_errors

ONE_REQUEST = (
    2.0  # seconds within which a signal to a whole process tree reaches a process directly and through parents
)
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class Stopping:
    """What has been asked of this process.

    Attributes:
        name: the signal that asked it to stop, or None.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._asked = 0.0  # when, on the monotonic clock
        self._held = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Only note a signal while the block runs; the block looks at `name` where it can stop."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def _receive(self, number: int) -> None:
        if self.name is None:
            self.name, self._asked = signal.Signals(number).name, time.monotonic()
            if not self._held:
                raise Stopped(f"stopped by {self.name}; the same command goes on")
        elif time.monotonic() - self._asked > ONE_REQUEST:
            os._exit(128 + number)

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Answer the signals; a signal this process was started to ignore (nohup) stays ignored."""
        self.name, owner = None, os.getpid()

        def receive(number: int, frame) -> None:
            if os.getpid() != owner:  # a worker: its batches are needed until the step is done
                if number == signal.SIGTERM:
                    os._exit(128 + number)
                return
            self._receive(number)

        before = {number: signal.getsignal(number) for number in SIGNALS}
        answered = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]
        for number in answered:
            signal.signal(number, receive)
        try:
            yield
        finally:
            for number in answered:
                signal.signal(number, before[number])


STOPPING = Stopping()  # signals belong to the process


def stoppable(main: Callable[..., None]) -> Callable[..., None]:
    """A command's `main` that answers signals while it runs, and says in plain words what a disk does to it.

    Raises:
        Stopped: on SIGTERM, SIGINT, SIGHUP or SIGUSR1; another, over two seconds later, ends it at once.
        StorageError: a disk is full, read-only or failing.
    """

    @wraps(main)
    def run(*args, **named) -> None:
        with STOPPING.handled(), storage_errors("."):
            main(*args, **named)

    return run


def run_to_its_end(command: Sequence[str], **how: object) -> int:
    """Run a command that is stoppable itself, and wait for it even when asked to stop; returns its exit code.

    It has a process group of its own and every signal is passed on: a terminal's Ctrl-C reaches it once, and one that
    only this process got reaches it too, so that it never trains on without its parent.

    Args:
        command: the program and its arguments.
        how: of `subprocess.Popen`.
    """
    with subprocess.Popen(command, process_group=0, **how) as child:
        before = {number: signal.getsignal(number) for number in SIGNALS}
        passed = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]
        for number in passed:
            signal.signal(number, lambda received, _: child.send_signal(received))
        try:
            return child.wait()
        finally:
            for number in passed:
                signal.signal(number, before[number])
