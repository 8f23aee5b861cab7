"""Stop a command on a signal.

Imports nothing slow, because signals may arrive during the slow imports.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

# Seconds: a signal to a process tree arrives directly and again through the parents.
ONE_REQUEST = 2.0
P = ParamSpec("P")
T = TypeVar("T")
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class Stopped(KeyboardInterrupt):
    """A signal ended the command; running it again resumes.

    Not a ProjectError: libraries swallow those.
    """

    exit_code = 75


class Stopping:
    """Stops this process on a signal: at once, or while `held` when its owner looks.

    Attributes:
        name: the received signal, or None.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._received = 0.0  # monotonic time
        self._held = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Only record signals while the block runs; it checks `name` where it can stop."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def _receive(self, number: int) -> None:
        if self.name is None:
            self.name, self._received = signal.Signals(number).name, time.monotonic()
            if not self._held:
                raise Stopped(f"stopped by {self.name}; repeat the command to resume")
        elif time.monotonic() - self._received > ONE_REQUEST:
            os._exit(128 + number)

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signals while the block runs.

        One that this process was started to ignore (nohup) stays ignored. Python handles signals in
        the main thread alone: in any other one this does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self.name, owner = None, os.getpid()

        def receive(number: int, _) -> None:
            if os.getpid() == owner:
                self._receive(number)
            elif number == signal.SIGTERM:  # a data worker before it calls `outlast_signals`
                os._exit(128 + number)

        before = {}
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, receive)
        try:
            yield
        except Exception as error:
            if isinstance(error.__context__, Stopped):  # a clean-up failed on what it interrupted
                raise error.__context__ from None
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def outlast_signals(_: int) -> None:
    """Make a data worker, of any number, ignore all signals but its parent's SIGTERM.

    A launcher, a scheduler or Ctrl-C signals the whole job, but the parent needs more batches to
    finish its step. A parent that fails ends its workers by SIGTERM, and waits for them for ever.
    Not for workers that Linux does not fork: libraries have started threads there, which still
    receive signals.
    """
    process = multiprocessing.parent_process()  # `os.getppid` may be a fork server's
    if process is None or not hasattr(signal, "sigwaitinfo"):  # macOS
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def wait() -> None:
        asked = False
        while not asked:
            received = signal.sigwaitinfo(SIGNALS)
            asked = received.si_signo == signal.SIGTERM and received.si_pid == process.pid
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


STOPPING = Stopping()  # signals belong to the process


def stoppable(main: Callable[P, T]) -> Callable[P, T]:
    """Decorate a command's `main` to handle signals.

    Raises:
        Stopped: on SIGTERM, SIGINT, SIGHUP or SIGUSR1; a second one over two seconds later kills
            the process.
    """

    @wraps(main)
    def run(*args: P.args, **named: P.kwargs) -> T:
        with STOPPING.handled():
            return main(*args, **named)

    return run
