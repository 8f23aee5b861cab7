"""Folders of the cache: whole or rebuilding; what killed processes left is removed, and only that."""

import subprocess
import sys
from pathlib import Path

import pytest

from common.files import PARTIAL
from data.cache import cached
from tests.sources import ROOT


def make(partial):
    (partial / "ids.bin").write_bytes(bytes(range(256)) * 40)
    (partial / "facts.json").write_text('{"rows": 3}')


@pytest.fixture
def made(tmp_path):
    """A folder of the cache and its files' content."""
    folder = cached(tmp_path / "cache" / "key", make)
    return folder, {path.name: path.read_bytes() for path in folder.iterdir()}


def never(partial):
    raise AssertionError("rebuilding")


def test_a_whole_folder_is_used(made):
    folder, content = made
    assert sorted(content) == ["checksums.json", "facts.json", "ids.bin"]
    assert cached(folder, never) == folder


def flipped(content, indices):
    return bytes(byte ^ (index in indices) for index, byte in enumerate(content))


@pytest.mark.parametrize("name", ["ids.bin", "facts.json", "checksums.json"])
@pytest.mark.parametrize(
    "damage",
    {
        "a byte": lambda content: flipped(content, [9]),
        "cut": lambda content: content[: len(content) // 2],
        "an object": lambda content: b"{}",
        "missing": None,
    }.values(),
)
def test_a_damaged_folder_is_rebuilt_with_one_log_line(made, caplog, damage, name):
    folder, content = made
    (folder / name).unlink()
    if damage:
        (folder / name).write_bytes(damage(content[name]))
    cached(folder, make)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == content
    [line] = [record.message for record in caplog.records]
    assert line.startswith(f"{folder}: ") and line.endswith("; rebuilding it")
    assert {path.name for path in folder.parent.iterdir()} == {"key", ".key.lock"}


BUILDER = """
import sys, time
from pathlib import Path
from data.cache import cached
def make(partial):
    (partial / "ids.bin").write_bytes(b"half")
    print(partial, flush=True)
    time.sleep(float(sys.argv[2]))
cached(Path(sys.argv[1]) / "key", make)
"""


def building(folder, seconds):
    command = [sys.executable, "-c", BUILDER, str(folder), str(seconds)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_the_second_of_two_builders_waits_and_uses_the_folder_of_the_first(tmp_path):
    with building(tmp_path, 0.2) as process:
        process.stdout.readline()
        assert (cached(tmp_path / "key", never) / "ids.bin").read_bytes() == b"half"


def test_what_a_killed_builder_left_is_removed_by_the_next_and_another_folders_is_kept(tmp_path):
    other = tmp_path / f".other{PARTIAL}-1"
    other.mkdir()
    with building(tmp_path, 600) as process:
        left = Path(process.stdout.readline().strip())
        process.kill()
    assert left.exists()
    cached(tmp_path / "key", make)
    assert {path.name for path in tmp_path.iterdir()} == {"key", ".key.lock", other.name}
