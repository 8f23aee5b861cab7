import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import CheckpointRefused
from training.run_folder import locked

ROOT = Path(__file__).parents[2]
HOLD = """
import sys
from training.run_folder import locked

with locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def holder(folder):
    """Another process that owns the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_one_process_owns_a_folder_until_it_ends_however_it_ends(tmp_path):
    folder = tmp_path / "run"
    other = holder(folder)
    with pytest.raises(CheckpointRefused, match=rf"pid {other.pid} on .*, started 20"), locked(folder):
        pass
    other.kill()
    other.wait()
    assert json.loads((folder / ".lock").read_text())["pid"] == other.pid
    with locked(folder):
        assert json.loads((folder / ".lock").read_text())["pid"] == os.getpid()
    assert list(folder.iterdir()) == []


def test_a_folder_that_was_there_or_is_used_stays(tmp_path):
    with locked(tmp_path / "new"):
        pass
    with locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path / "run"):
        (tmp_path / "run" / "run.json").write_text("{}")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]
