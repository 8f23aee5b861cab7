"""A command in child processes that get a signal while they write, or while another one runs."""

import os
import signal
import time
import traceback

from common.errors import ProjectError
from tests.faults.breaking import watch_events


def until(over, seconds=300):
    """Wait until something is, and return it."""
    for _ in range(100 * seconds):
        if made := over():
            return made
        time.sleep(0.01)
    raise AssertionError(f"waited for {seconds} seconds")


def run(command, folder, faults=None):
    """Call `command` with a folder in a child. Returns its code, negative for a signal, and its
    number of events if it has ended by itself."""

    def counted():
        events = []
        watch_events(str(folder), faults or {}, events)
        command(folder)
        os.write(write, str(len(events)).encode())

    read, write = os.pipe()
    code = meanwhile(counted)
    os.close(write)
    with os.fdopen(read) as pipe:
        return code, int(pipe.read() or 0)


def meanwhile(command, *arguments):
    """The exit code of a command in a child process, while this one is in the middle of its own."""
    return os.waitstatus_to_exitcode(os.waitpid(forked(command, *arguments), 0)[1])


def forked(command, *arguments):
    """Start a command in a child process, which ends with its exit code; returns the pid."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            command(*arguments)
            code = 0
        except ProjectError as error:
            code = error.exit_code
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    return pid


class Race:
    """Processes that do jobs at once; the first is killed in its first job, and the others go on.
    Each must begin another job."""

    def __init__(self, folder, count):
        self._notes, self._dead, self._count = folder / "notes", folder / "dead", count
        self._killed = False

    def note(self, line):
        with self._notes.open("a") as file:
            file.write(f"{line}\n")

    def notes(self):
        return self._notes.read_text().splitlines()

    def begin(self, name):
        """To be called in every job."""
        self.note(f"begin {name}")
        until(lambda: len(self.notes()) >= self._count)
        if self._killed:
            os.kill(os.getpid(), signal.SIGKILL)
        until(self._dead.exists)

    def run(self, command):
        """Call `command` with its number in every process; returns the notes."""
        pids = []
        for number in range(self._count):
            self._killed = number == 0
            pids.append(forked(command, number))
        codes = []
        for pid in pids:
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            self._dead.touch()
        assert codes == [-signal.SIGKILL] + [0] * (self._count - 1)
        return self.notes()


def check_kills(command, root, placed, count):
    """A killed command leaves only whole files, and then ends with what it writes undisturbed. It
    is called with a folder of `root`, in which a reader finds `placed`, {name: content}. Every
    second one of the kills is a SIGTERM."""
    code, events = run(command, root / "whole")
    assert code == 0
    expected = placed(root / "whole")
    assert expected
    for number in range(count):
        at = 1 + number * (events - 1) // (count - 1)
        fault, killed = (("kill", signal.SIGKILL), ("stop", signal.SIGTERM))[number % 2]
        folder = root / f"at-{at}"
        assert run(command, folder, {fault: at})[0] == -killed
        files = placed(folder)
        assert files.items() <= expected.items(), (at, files.keys())
        if files != expected:
            assert run(command, folder)[0] == 0
            assert placed(folder) == expected, at
