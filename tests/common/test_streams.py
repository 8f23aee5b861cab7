"""What is printed: control characters, a reader that stops early, a full disk, a poor terminal."""

import os
import subprocess
import sys

from tests.sources import ROOT

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


def test_a_reader_that_stops_early_gets_no_traceback():
    assert run(MANY, "| head -1")[1:] == ("a line\n", "")


def test_output_that_cannot_be_written_is_an_error():
    assert run(MANY, ">/dev/full") == (4, "", "error: [Errno 28] No space left on device\n")


def test_text_that_the_terminal_cannot_show_is_escaped():
    code = f"{START}run_command(lambda: show('caf\\u00e9 \\udce9'))"
    assert run(code, PYTHONIOENCODING="ascii") == (0, "caf\\xe9 \\udce9\n", "")
