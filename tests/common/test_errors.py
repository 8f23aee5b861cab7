import errno
import os
import pickle
import signal
import subprocess
import sys

import pytest

from common.errors import DISK, BadInput, StorageError, run_command, unwritable
from common.signals import Stopped, stoppable
from tests.sources import ROOT

TOKEN = "hf_" + "aB3" * 11


def failed(main, capsys):
    """The exit code of a command and what it said on stderr."""
    with pytest.raises(SystemExit) as leaving:
        run_command(main)
    return leaving.value.code, capsys.readouterr().err


def raising(error):
    def main():
        raise error

    return main


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("a.txt:3: what; do", "a.txt:3: what; do"),
        ("first\n  second\r\nthird", "first second third"),
        ("a\x1b[31mred\x07", "a\\x1b[31mred\\x07"),
        ("left\u202eright\u2028next\ud800", "left\\u202eright\\u2028next\\ud800"),
        ("Zwölf 🙂", "Zwölf 🙂"),
    ],
)
def test_a_message_is_one_printable_line(message, line, capsys):
    error = BadInput(message)
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == line
    assert failed(raising(error), capsys) == (2, f"error: {line}\n")


@pytest.mark.parametrize("number", DISK)
def test_a_failing_disk_is_a_storage_error_wherever_the_write_happened(number, capsys):
    error = OSError(number, os.strerror(number), "folder/scores.json")
    assert type(unwritable(error, "x")) is StorageError
    said = f"error: [Errno {number}] {os.strerror(number)}: 'folder/scores.json'\n"
    assert failed(raising(error), capsys) == (4, said)


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOTDIR, errno.ENOENT])
def test_an_impossible_path_is_bad_input_and_an_unexpected_error_keeps_its_traceback(number):
    error = OSError(number, os.strerror(number))
    assert type(unwritable(error, "x")) is BadInput
    with pytest.raises(OSError, match=os.strerror(number)):
        run_command(raising(error))


_EMPTY = "the value is empty; is a shell variable unset?"
_TOKEN = "looks like a hub token"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--output", ""], f"--output: {_EMPTY}"),
        ([""], f"the first argument: {_EMPTY}"),
        (["--query_prompt=", "--output="], f"--output: {_EMPTY}"),  # a prompt may be empty
        (["--model", TOKEN], f"--model: {_TOKEN}"),
        ([f"--model=x{TOKEN}y"], f"--model: {_TOKEN}"),
        (["a", TOKEN], f"an argument: {_TOKEN}"),
        (["--model", "hf_oauth_eyJhbGciOi.J9-eyJ_dWIi"], f"--model: {_TOKEN}"),
    ],
)
def test_no_command_begins_with_an_argument_that_none_can_take(argv, said, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["python -m eval", *argv])
    code, told = failed(lambda: pytest.fail("it began"), capsys)
    assert code == 2 and told.startswith(f"error: {said}") and TOKEN not in told


def test_a_signal_lets_a_command_remove_its_temporary_files(tmp_path):
    """And no end of a command looks for cycles in what it has imported."""
    script = tmp_path / "script.py"
    script.write_text(
        "import atexit, gc, os, signal, sys, tempfile\nfrom common.errors import run_command\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "def main():\n    with tempfile.TemporaryDirectory(dir=sys.argv[1]):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\nrun_command(main)\n"
    )
    folder = tmp_path / "temporary"
    folder.mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, script, folder]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, [*folder.iterdir()]) == (75, "True\n", [])
    assert done.stderr == "stopped by SIGTERM; repeat the command to resume\n"


def test_a_signal_stops_a_command_although_a_library_s_clean_up_fails_on_it():
    def main():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            raise AttributeError("_lock")  # as tqdm, interrupted before it has its lock

    with pytest.raises(Stopped, match="SIGTERM"):
        stoppable(main)()
