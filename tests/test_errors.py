import errno
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from tqdm import tqdm

from common.errors import BadInput, StorageError, run_command, unwritable
from tests.test_structure import ROOT, SOURCES, imports

FIRST = ("common", "yaml", "data", "numpy")  # libraries that do not ask for the working directory

TOKEN = "hf_" + "aB3" * 11


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
def test_a_message_is_one_line_that_a_terminal_shows_as_it_is(message, line, capsys):
    error = BadInput(message)
    assert str(error) == str(pickle.loads(pickle.dumps(error))) == line

    def main():
        raise error

    with pytest.raises(SystemExit) as leaving:
        run_command(main)
    assert leaving.value.code == 2
    assert capsys.readouterr().err == f"error: {line}\n"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO])
def test_a_disk_that_fails_is_storage_wherever_the_write_was(number, capsys):
    error = OSError(number, os.strerror(number), "folder/scores.json")
    assert type(unwritable(error, "x")) is StorageError

    def main():
        raise error

    with pytest.raises(SystemExit) as leaving:
        run_command(main)
    assert leaving.value.code == 4
    assert capsys.readouterr().err == f"error: [Errno {number}] {os.strerror(number)}: 'folder/scores.json'\n"


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOTDIR, errno.ENOENT])
def test_a_place_that_cannot_be_is_input_and_an_error_nobody_expected_keeps_its_traceback(number):
    error = OSError(number, os.strerror(number))
    assert type(unwritable(error, "x")) is BadInput

    def main():
        raise error

    with pytest.raises(OSError, match=os.strerror(number)):
        run_command(main)


@pytest.mark.parametrize(
    ("words", "name"), [(["--output", ""], "--output"), (["--output="], "--output"), ([""], "first")]
)
def test_an_argument_that_is_empty_is_refused_before_anything_is_done(words, name, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["python -m eval", *words])
    with pytest.raises(SystemExit) as leaving:
        run_command(lambda: pytest.fail("was begun"))
    assert leaving.value.code == 2
    assert name in capsys.readouterr().err


def test_an_argument_that_is_not_utf_8_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["python -m eval", "--output", "caf\udce9"])
    with pytest.raises(SystemExit) as leaving:
        run_command(lambda: pytest.fail("was begun"))
    assert leaving.value.code == 2
    assert capsys.readouterr().err == "error: 'caf\\udce9': is not UTF-8; rename that file or folder\n"


def test_a_name_on_the_disk_that_is_not_utf_8_is_an_error_of_one_line(capsys):
    with pytest.raises(SystemExit) as leaving:
        run_command(lambda: "folder/caf\udce9/model.safetensors".encode())
    assert leaving.value.code == 2
    said = "error: 'folder/caf\\udce9/model.safetensors': is not UTF-8; rename that file or folder\n"
    assert capsys.readouterr().err == said
    with pytest.raises(UnicodeEncodeError):
        run_command(lambda: "é".encode("ascii"))


def test_a_working_directory_that_is_gone_is_said_before_a_library_asks_for_it(tmp_path):
    """`errors` is the first that every command imports."""
    lines = 'mkdir gone; cd gone; rmdir "$PWD"; for name in run_unsup.py run_pretrain_aux.py; do'
    lines += ' "$0" "$1/$name"; echo $?; done'
    lines += '; for name in eval quickstart; do PYTHONPATH="$1" "$0" -m $name; echo $?; done'
    done = subprocess.run(["sh", "-c", lines, sys.executable, str(ROOT)], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["2"] * 4, done.stderr
    assert done.stderr == "error: the working directory has been deleted; change to one that is there\n" * 4


@pytest.mark.parametrize("path", [path for path in SOURCES if "    run_command(main)\n" in path.read_text()], ids=str)
def test_a_command_imports_errors_before_any_library(path):
    others = [name.split(".")[0] for name in imports(path)]
    assert next(name for name in others if name not in {*sys.stdlib_module_names, "__future__"}) in FIRST


def test_a_name_that_is_too_long_is_an_error_of_one_line(capsys):
    with pytest.raises(SystemExit) as leaving:
        run_command(lambda: Path("x" * 5000).exists())
    assert leaving.value.code == 2
    assert capsys.readouterr().err.startswith("error: [Errno 36] File name too long: 'xxx")


def test_an_error_stands_on_a_line_of_its_own_below_a_progress_bar(capsys):
    def main():
        for _ in tqdm(range(2)):
            raise BadInput("what")

    with pytest.raises(SystemExit):
        run_command(main)
    assert capsys.readouterr().err.splitlines()[-1] == "error: what"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--model", TOKEN], "--model: looks like a token of the hub"),
        ([f"--model=x{TOKEN}y"], "--model: looks like"),
        (["a", TOKEN], "an argument: looks like"),
        ([f"--{TOKEN}"], "an argument: looks like"),
    ],
)
def test_no_command_begins_with_a_token_of_the_hub_in_its_arguments(argv, said, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["command", *argv])
    with pytest.raises(SystemExit) as leaving:
        run_command(lambda: pytest.fail("it began"))
    told = capsys.readouterr().err
    assert leaving.value.code == 2
    assert said in told and TOKEN not in told


def test_a_word_that_only_begins_like_a_token_is_none(monkeypatch):
    monkeypatch.setattr("sys.argv", ["command", "--model", "hf_internal-testing/tiny-random-bert", "runs/hf_bert"])
    run_command(lambda: None)
