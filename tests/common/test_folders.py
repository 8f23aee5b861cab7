"""Folders are whole or absent: written by one command, checked by readers, kept by a cache."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from common import folders
from common.errors import BadInput, CheckpointRefused
from common.folders import MANIFEST, cached, facts_of, filling, locked, problem, recover
from tests.faults.forked import forked, meanwhile
from tests.refusals import refused

FILES = {"model.safetensors": b"\x00" * 500, "optimizer.pt": bytes(range(256))}
FILES |= {"1_Pooling/config.json": b"{}"}


def fill(folder, files=FILES):
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)


def folder_of(target, files=FILES, **facts):
    with filling(target, facts, replace=True) as folder:
        fill(folder, files)
    return target


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_filled_folder_is_whole_and_says_what_it_is(tmp_path):
    with filling(tmp_path / "x", facts := {"kind": "toy"}) as folder:
        fill(folder)
        facts["rows"] = 3
        assert not (tmp_path / "x").exists()
    assert problem(tmp_path / "x") is None and names(tmp_path) == ["x"]
    assert facts_of(tmp_path / "x", "go") == {"kind": "toy", "rows": 3}
    for name in (".DS_Store", "1_Pooling/.nfs1", "notes.txt"):
        (tmp_path / "x" / name).touch()
    assert problem(tmp_path / "x") is None, "other files do not matter"
    with pytest.raises(BadInput, match="x: exists already"), filling(tmp_path / "x"):
        pass
    folder_of(tmp_path / "x", FILES | {"README.md": b"# x"})
    (tmp_path / "x" / "README.md").unlink()
    assert problem(tmp_path / "x") is None, "people may edit it"
    (tmp_path / "x").rename(tmp_path / ".x.replaced")  # by a writer that was killed then
    recover(tmp_path / "x")
    assert problem(tmp_path / "x") is None and names(tmp_path) == ["x"]


def test_a_link_is_read_as_the_hubs_cache_has_them(tmp_path):
    path = folder_of(tmp_path / "x") / "optimizer.pt"
    path.rename(tmp_path / "elsewhere")
    assert problem(tmp_path / "x") == "optimizer.pt is missing"
    path.symlink_to(tmp_path / "elsewhere")
    assert problem(tmp_path / "x") is None


@pytest.mark.parametrize("content", ["[]", "{}", "[" * 5000, '{"format": "1"}', '{"format": 1}'])
def test_a_manifest_that_is_none_is_damaged(tmp_path, content):
    (folder_of(tmp_path / "x") / MANIFEST).write_text(content)
    assert MANIFEST in problem(tmp_path / "x")


def test_an_error_while_writing_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="odd"), filling(tmp_path / "deep" / "x") as folder:
        fill(folder)
        raise OSError("odd")
    assert list((tmp_path / "deep").iterdir()) == []
    (tmp_path / "file").touch()
    assert "x: cannot be written (" in refused(folder_of, tmp_path / "file" / "x")


def test_what_is_in_the_place_of_a_folder_is_replaced_and_a_link_is_not_followed(tmp_path):
    other, run = folder_of(tmp_path / "other", kind="other"), tmp_path / "run"
    run.mkdir()
    (run / "1").mkdir()
    (run / "2").symlink_to(other)
    (run / "3").symlink_to(tmp_path / "nowhere")
    (run / "4").touch()
    for name in "1234":
        assert facts_of(folder_of(run / name), "go") == {}
    assert facts_of(other, "go") and names(run) == ["1", "2", "3", "4"]


def test_everything_is_flushed_before_the_rename_and_the_rename_after_it(tmp_path, monkeypatch):
    events, rename = [], Path.rename
    monkeypatch.setattr(folders, "sync", lambda path: events.append(path.name))

    def renamed(path, target):
        events.append("renamed")
        rename(path, target)

    monkeypatch.setattr(Path, "rename", renamed)
    folder_of(tmp_path / "x")
    before, after = events[: events.index("renamed")], events[events.index("renamed") :]
    written = [*(Path(file).name for file in FILES), MANIFEST, "1_Pooling"]
    assert sorted(written) == sorted(before[1:]) and "x" in before[0]
    assert after == ["renamed", tmp_path.name], "the rename is flushed too"


def test_of_two_writers_the_second_is_refused(tmp_path):
    with filling(tmp_path / "x") as folder:
        fill(folder)
        assert meanwhile(folder_of, tmp_path / "x") == 5
        assert meanwhile(folder_of, tmp_path / "y") == 0
        with pytest.raises(CheckpointRefused, match="x: written by another command"):
            with filling(tmp_path / "x") as of_a_thread, filling(tmp_path / "x") as other:
                fill(of_a_thread)
                fill(other, {"a": b"1"})
        shutil.rmtree(tmp_path / "x")
    assert problem(tmp_path / "x") is None and names(tmp_path) == ["x", "y"]


def child(work):
    """Start a process that calls `work` with how to say a word; its pid, and the first word."""
    read, write = os.pipe()
    pid = forked(work, lambda word: os.write(write, str(word).encode()))
    return pid, os.read(read, 1000).decode()


def building(root, seconds):
    def slowly(folder, say):
        (folder / "ids.bin").write_bytes(b"half")
        say(folder)
        time.sleep(seconds)

    return child(lambda say: cached(root / "key", lambda folder: slowly(folder, say)))


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def never(folder):
    raise AssertionError("made again")


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
@pytest.mark.parametrize("damage", [lambda content: b"x" + content[1:], lambda content: b"", None])
def test_a_damaged_folder_of_a_cache_is_made_again_in_one_log_line(tmp_path, caplog, damage, name):
    folder = cached(tmp_path / "key", fill)
    content = (folder / name).read_bytes()
    (folder / name).unlink()
    if damage:
        (folder / name).write_bytes(damage(content))
    cached(folder, fill)
    cached(folder, never)
    assert problem(folder) is None and (folder / name).read_bytes() == content
    [line] = [record.message for record in caplog.records]
    assert line.startswith(f"{folder}: {name} ") and line.endswith("; making it again")
    assert names(tmp_path) == ["key"]


def test_the_second_of_two_builders_waits_and_uses_the_folder_of_the_first(tmp_path):
    pid, _ = building(tmp_path, 0.2)
    assert (cached(tmp_path / "key", never) / "ids.bin").read_bytes() == b"half"
    os.waitpid(pid, 0)


def test_what_a_killed_builder_left_is_removed_by_the_next_and_another_folders_is_kept(tmp_path):
    kept = [".key.partial", ".other.infocse-partial-1-a"]
    for name in (*kept, ".key.infocse-partial"):
        (tmp_path / name).mkdir()
    pid, left = building(tmp_path, 600)
    kill(pid)
    assert Path(left).exists() and (tmp_path / ".key.lock").exists()
    cached(tmp_path / "key", fill)
    assert names(tmp_path) == sorted([*kept, "key"])


def test_a_lock_is_held_until_its_process_ends_or_is_killed(tmp_path):
    def hold(say):
        with locked(tmp_path / "new" / "run"):
            say("held")
            time.sleep(60)

    other, _ = child(hold)
    with pytest.raises(CheckpointRefused, match=f"run: in use by another command .pid {other}"):
        with locked(tmp_path / "new" / "run"):
            pass
    kill(other)
    with locked(tmp_path / "new" / "run"), locked(tmp_path / "new" / "run"):
        assert meanwhile(locked(tmp_path / "new" / "run").__enter__) == 5
    assert names(tmp_path / "new") == []
