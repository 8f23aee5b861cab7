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


EMPTY, HUB = "the value is empty; is a shell variable unset?", "looks like a hub token"
NONE = [(["--output", ""], f"--output: {EMPTY}"), ([""], f"the first argument: {EMPTY}")]
NONE += [(["--query_prompt=", "--output="], f"--output: {EMPTY}")]  # a prompt may be empty
NONE += [(["--model", TOKEN], f"--model: {HUB}"), ([f"--model=x{TOKEN}y"], f"--model: {HUB}")]
NONE += [(["--model", "hf_oauth_eyJhbGciOi.J9-eyJ_dWIi"], f"--model: {HUB}")]
NONE += [(["a", TOKEN], f"an argument: {HUB}")]


@pytest.mark.parametrize(("argv", "said"), NONE)
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


START = "import logging\nfrom common.errors import run_command\nfrom common.streams import show\n"
MANY = f"{START}run_command(lambda: show('a line\\n' * 1_000_000))\n"
NAMED = f"""{START}
import huggingface_hub.utils.logging
from tqdm import tqdm

def main():
    with tqdm(total=2):
        logging.info("model \\x1b]0;x\\x07 in\\n\\trun\\x9b2J, Zwölf\\u3000🙂")
    logging.getLogger("huggingface_hub.utils").warning("once")
    show("model \\x1b[31mred\\r\\n\\tline")

run_command(main)
"""


def run(code, redirected="", **variables):
    """The shell's exit code, what was printed and what was said on stderr."""
    command = ["bash", "-o", "pipefail", "-c", f'"$0" -c "$1" {redirected}', sys.executable, code]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8")
    return done.returncode, done.stdout, done.stderr


def test_a_terminal_obeys_no_name_and_a_message_is_written_once_apart_from_a_bar():
    code, shown, said = run(NAMED)
    assert (code, shown) == (0, "model \\x1b[31mred\\r\n\tline\n")
    message = ["model \\x1b]0;x\\x07 in", "\trun\\x9b2J, Zwölf\u3000🙂"]
    lines = said.split("\n")
    assert lines[-2:] == ["once", ""] and lines.count("once") == 1
    start = lines.index(message[1]) - 1
    assert lines[start].rpartition("\r")[2] == message[0]


def test_a_reader_that_stops_early_a_full_disk_and_what_the_terminal_cannot_show():
    assert run(MANY, "| head -1")[1:] == ("a line\n", "")
    assert run(MANY, ">/dev/full") == (4, "", "error: [Errno 28] No space left on device\n")
    code = f"{START}run_command(lambda: show('caf\\u00e9 \\udce9'))"
    assert run(code, PYTHONIOENCODING="ascii") == (0, "caf\\xe9 \\udce9\n", "")
