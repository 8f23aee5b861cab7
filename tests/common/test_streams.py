"""Commands whose standard output or error is closed, full, or read no further."""

import subprocess
import sys

import pytest

from tests.sources import ROOT

CHATTY = """
import logging, os, sys
from tqdm import tqdm
from common.errors import run_command
from common.streams import show

def main():
    with open("result", "w") as file:
        for number in tqdm(range(2000)):
            print("a line of a library", number, flush=True)
            logging.info("a line of ours %d", number)
            file.write(f"{number}\\n")
        os.write(1, b"printed without Python")
        os.write(2, b"printed without Python")
    show("the table" * 1000, "result")

run_command(main)
"""
PRINTING = """
from common.errors import run_command
from common.streams import show
run_command(lambda: show("a line\\n" * 100_000))
"""


def run(code, redirected, folder):
    """Exit code of the program itself, and what was said on stderr."""
    line = f'{{ "$0" -c "$1" {redirected}'.replace("|", "; echo $? >code; } |") if "|" in redirected else None
    line = line or f'{{ "$0" -c "$1"; echo $? >&3; }} {redirected} 3>code'
    command = ["sh", "-c", line, sys.executable, code]
    done = subprocess.run(command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True)
    return int((folder / "code").read_text()), done.stderr.decode()


NAMED = """
import logging
from common.errors import run_command
from common.streams import show

def main():
    logging.info("model \\x1b]0;x\\x07 in\\n\\trun\\x9b2J, Zwölf\\u3000🙂")
    show("model \\x1b[31mred\\r\\n\\tline")

run_command(main)
"""


def test_a_terminal_obeys_no_name_that_is_printed():
    done = subprocess.run([sys.executable, "-c", NAMED], cwd=ROOT, capture_output=True, encoding="utf-8")
    assert done.stderr == "model \\x1b]0;x\\x07 in\n\trun\\x9b2J, Zwölf\u3000🙂\n"
    assert done.stdout == "model \\x1b[31mred\\r\n\tline\n"


LOST = ["<&- >&- 2>&-", ">/dev/full 2>/dev/full", "2>&1 | head -1"]


@pytest.mark.parametrize("redirected", LOST)
def test_a_command_whose_output_is_lost_finishes_and_writes_its_file(redirected, tmp_path):
    code, _ = run(CHATTY, redirected, tmp_path)
    assert code == 0
    assert (tmp_path / "result").read_text() == "".join(f"{number}\n" for number in range(2000))


def test_a_reader_that_stops_early_is_not_an_error(tmp_path):
    assert run(PRINTING, "| head -1", tmp_path) == (0, "")
    assert run(PRINTING, ">&-", tmp_path) == (0, "")


def test_output_that_is_only_printed_and_cannot_be_written_is_an_error(tmp_path):
    line = "error: [Errno 28] No space left on device: 'standard output'\n"
    assert run(PRINTING, ">/dev/full", tmp_path) == (4, line)


def test_text_that_the_terminal_cannot_show_is_escaped(tmp_path):
    code = "import os, sys\nfrom common.errors import run_command\nfrom common.streams import show\n"
    code += "run_command(lambda: show('caf\\u00e9 \\udce9', 'file'))"
    environment = {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"caf\\xe9 \\udce9\n"
