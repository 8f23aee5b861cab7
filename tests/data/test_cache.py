"""Folders of the cache: whole or rebuilding; what killed processes left is removed, and only that."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import common.files
import data.cache
from common.errors import BadInput
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


def flipped(content, places=range(0, 8000, 20)):
    return bytes(byte ^ (place in places) for place, byte in enumerate(content))


@pytest.mark.parametrize("name", ["ids.bin", "facts.json", "checksums.json"])
@pytest.mark.parametrize(
    "damage",
    [flipped, lambda c: flipped(c, [9]), lambda c: c[: len(c) // 2], lambda c: c[: len(c) // 2].ljust(len(c), b"\0"),
     lambda c: b"", lambda c: b"{}", lambda c: b"[]", lambda c: c + b"\0", None],
    ids=["400 bytes", "a byte", "cut", "zeroed", "empty", "an object", "a list", "longer", "missing"],
)  # fmt: skip
def test_a_damaged_folder_is_rebuilt_with_one_log_line(made, caplog, damage, name):
    folder, content = made
    (folder / name).unlink()
    if damage:
        (folder / name).write_bytes(damage(content[name]))
    cached(folder, make)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == content
    [line] = [record.message for record in caplog.records]
    assert line.startswith(f"{folder}: ") and line.endswith("; rebuilding it")
    assert list(folder.parent.iterdir()) == [folder]


def test_everything_is_flushed_before_the_rename(tmp_path, monkeypatch):
    done, rename = [], data.cache.Path.rename
    monkeypatch.setattr(common.files, "sync", lambda path: done.append(path.name))
    monkeypatch.setattr(data.cache.Path, "rename", lambda *names: done.append("rename") or rename(*names))
    cached(tmp_path / "key", make)
    checksums, facts, ids, partial, *end = done
    assert [checksums, facts, ids] == ["checksums.json", "facts.json", "ids.bin"]
    assert [partial[:16], *end] == [PARTIAL, "rename", tmp_path.name]


@pytest.mark.parametrize("damaged", [False, True])
def test_of_two_builders_the_faster_ones_folder_is_kept(tmp_path, damaged):
    """The second is called while the first fills its own; the first then finds it in its place, or damaged again."""
    folder = tmp_path / "key"

    def slow(partial):
        make(partial)
        cached(folder, make)
        (folder / "mark").touch()
        if damaged:
            (folder / "ids.bin").write_bytes(b"")

    cached(folder, slow)
    assert (folder / "mark").exists() == (not damaged)
    assert (folder / "ids.bin").stat().st_size == 256 * 40
    assert list(tmp_path.iterdir()) == [folder]


BUILDER = """
import sys, time
from pathlib import Path
from common.errors import BadInput
from common.files import PARTIAL
from data.cache import cached
def make(partial):
    (partial / "ids.bin").write_bytes(b"half")
    print(partial, flush=True)
    time.sleep(600)
cached(Path(sys.argv[1]) / "slow", make)
"""


def test_leftovers_of_dead_processes_are_removed_and_those_of_live_ones_kept(tmp_path):
    dead, foreign = tmp_path / f"{PARTIAL}-older", tmp_path / ".partial-mine"
    dead.mkdir()
    foreign.mkdir()
    (dead / "ids.npy").write_bytes(b"half")
    command = [sys.executable, "-c", BUILDER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        live = Path(process.stdout.readline().strip())
        assert not dead.exists() and live.exists()
        cached(tmp_path / "key", make)
        assert (live / "ids.bin").read_bytes() == b"half"
        process.kill()
    assert live.exists()
    cached(tmp_path / "key", never)
    assert {path.name for path in tmp_path.iterdir()} == {"key", foreign.name}


def test_a_cache_whose_file_system_locks_no_folder_works(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(data.cache.fcntl, "flock", refused)
    (tmp_path / f"{PARTIAL}-somebody").mkdir()
    cached(tmp_path / "key", make)
    assert cached(tmp_path / "key", never).is_dir() and (tmp_path / f"{PARTIAL}-somebody").is_dir()


def test_two_users_share_a_cache(made, monkeypatch):
    """By the modes that their umask gives; what one cannot read stays as it is."""
    folder, content = made
    before = os.umask(0o022)
    os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o777 & ~before

    def unreadable(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(data.cache, "sha256", unreadable)
    with pytest.raises(BadInput, match=f"--cache_dir {folder.parent}: key is another user's and cannot be read"):
        cached(folder, never)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == content
