"""Signals that ask a run to stop; imports nothing large, since they may come before anything large is imported."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps

from common.errors import Stopped

ONE_REQUEST = 2.0  # seconds in which a signal to a process tree arrives, directly and once more through the parents
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class Stopping:
    """Signals that ask this process to stop: at once where nothing can be lost, else after the optimizer step.

    Attributes:
        name: the signal that asked it to stop, or None.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._asked = 0.0  # time of the monotonic clock
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
        """Answer the signals while the block runs."""
        self.name, owner = None, os.getpid()

        def receive(number: int, _) -> None:
            if os.getpid() == owner:
                self._receive(number)
            elif number == signal.SIGTERM:  # only this ends a data worker: its batches are needed to finish the step
                os._exit(128 + number)

        with _signals_to(receive):
            yield


@contextmanager
def _signals_to(receive: Callable[[int, object], object]) -> Iterator[None]:
    """Handle `SIGNALS` while the block runs; a signal this process was started to ignore (nohup) stays ignored."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    handled = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]
    for number in handled:
        signal.signal(number, receive)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


STOPPING = Stopping()  # signals belong to the process


def stoppable(main: Callable[..., str]) -> Callable[..., str]:
    """A command's `main` that answers signals.

    Raises:
        Stopped: on SIGTERM, SIGINT, SIGHUP or SIGUSR1; another one over two seconds later ends the process at once.
    """

    @wraps(main)
    def run(*args, **named) -> str:
        with STOPPING.handled():
            return main(*args, **named)

    return run


def run_to_its_end(command: Sequence[str], **options: object) -> int:
    """Run a command that handles signals itself, and wait for it even when asked to stop; returns its exit code.

    The command gets a process group of its own, and every signal is passed on to it: Ctrl-C in a terminal reaches it
    once, and a signal sent only to this process reaches it too, so that it never goes on without its parent.

    Args:
        command: the program and its arguments.
        options: of `subprocess.Popen`.
    """
    with (
        subprocess.Popen(command, process_group=0, **options) as child,
        _signals_to(lambda number, _: child.send_signal(number)),
    ):
        return child.wait()
