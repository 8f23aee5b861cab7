import os
import random
import shutil
from pathlib import Path

import pytest

from common import files
from training import checkpoint
from training.checkpoint import (
    MANIFEST,
    commit,
    committing,
    owner,
    problem,
    recover,
    replacing_files,
)

FILES = {
    "model.safetensors": b"\x00" * 500,
    "optimizer.pt": bytes(range(256)),
    "1_Pooling/config.json": b"{}",
}


def folder_of(root, name="checkpoint-3", run_id="one", files=FILES):
    with committing(root / name, run_id) as folder:
        for file, content in files.items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_bytes(content)
    return root / name


def test_a_committed_folder_is_valid_and_belongs_to_its_run(tmp_path):
    folder = folder_of(tmp_path)
    assert problem(folder, "one") is None
    assert owner(folder) == "one"
    assert "another run" in problem(folder, "two")
    assert "scheduler.pt is missing" in problem(folder, "one", ("scheduler.pt",))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-3"]
    (folder / "pytorch_model.bin").touch()
    assert problem(folder, "one") == "pytorch_model.bin is not in its manifest"


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_a_missing_or_cut_file_or_a_link_is_found(tmp_path, name):
    folder = folder_of(tmp_path)
    path = folder / name
    kept = tmp_path / "kept"
    shutil.copy(path, kept)
    path.write_bytes(kept.read_bytes()[:-1])
    assert name in problem(folder, "one")
    path.unlink()
    assert name in problem(folder, "one")
    if name != MANIFEST:
        path.symlink_to(kept)
        assert name in problem(folder, "one")


@pytest.mark.parametrize(
    "name", [".DS_Store", ".nfs000000000001", "1_Pooling/.DS_Store", ".AppleDouble/x"]
)
def test_a_hidden_file_that_a_system_leaves_does_not_matter(tmp_path, name):
    folder = folder_of(tmp_path, files=FILES | {name: b"before"})
    assert problem(folder, "one") is None
    (folder / name).unlink()
    assert problem(folder, "one") is None


class Killed(BaseException):
    pass


@pytest.mark.parametrize("moment", range(3))
def test_a_replacement_that_is_cut_short_leaves_the_old_or_the_new_folder(
    tmp_path, monkeypatch, moment
):
    """Between any two renames of the replacement; `recover` is what the next start calls."""
    folder_of(tmp_path, "best")
    new = FILES | {"model.safetensors": b"new"}
    partial = tmp_path / ".partial"
    partial.mkdir()
    (partial / "1_Pooling").mkdir()
    for file, content in new.items():
        (partial / file).write_bytes(content)
    rename, calls = os.rename, []

    def counted(*paths, **named):
        if len(calls) == moment:
            raise Killed
        calls.append(paths)
        rename(*paths, **named)

    monkeypatch.setattr(os, "rename", counted)
    try:
        commit(partial, tmp_path / "best", "one")
    except Killed:
        assert moment < 2
    monkeypatch.undo()
    recover(tmp_path / "best")
    assert problem(tmp_path / "best", "one") is None
    expected = (new if moment == 2 else FILES)["model.safetensors"]
    assert (tmp_path / "best" / "model.safetensors").read_bytes() == expected


def test_what_is_in_the_place_of_a_folder_is_replaced_and_a_link_is_not_followed(tmp_path):
    run, other = tmp_path / "run", folder_of(tmp_path / "other", run_id="two")
    shutil.copytree(other, run / "checkpoint-1")
    (run / "checkpoint-2").symlink_to(other)
    (run / "checkpoint-3").symlink_to(tmp_path / "nowhere")
    (run / "checkpoint-4").touch()
    names = [f"checkpoint-{number}" for number in range(1, 5)]
    for name in names:
        assert problem(folder_of(run, name), "one") is None
    assert problem(other, "two") is None and sorted(path.name for path in run.iterdir()) == names


def test_an_error_while_writing_leaves_nothing(tmp_path):
    for writer in (lambda: committing(tmp_path / "best", "one"), lambda: replacing_files(tmp_path)):
        with pytest.raises(OSError, match="full"), writer() as folder:
            (folder / "model.safetensors").write_bytes(b"half")
            raise OSError("full")
        assert list(tmp_path.iterdir()) == []


def test_everything_is_flushed_before_the_rename_and_the_rename_after_it(tmp_path, monkeypatch):
    events, rename = [], Path.rename
    monkeypatch.setattr(files, "sync", lambda path: events.append(path.name))
    monkeypatch.setattr(checkpoint, "sync", lambda path: events.append(path.name))
    monkeypatch.setattr(
        Path, "rename", lambda path, target: events.append("renamed") or rename(path, target)
    )
    folder_of(tmp_path)
    before = events[: events.index("renamed")]
    written = [*(Path(file).name for file in FILES), MANIFEST]
    assert sorted(before) == sorted([*written, "1_Pooling", ".checkpoint-3.partial"])
    assert events[len(before) :] == ["renamed", tmp_path.name], "the rename is flushed too"


def test_installed_files_replace_those_of_the_folder_and_no_others(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "model.safetensors").write_text("old")
    with replacing_files(tmp_path) as folder:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text("{}")
        (folder / "model.safetensors").write_text("new")
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {"notes.txt", "model.safetensors", "1_Pooling/config.json"}
    assert (tmp_path / "model.safetensors").read_text() == "new"


def test_every_flipped_bit_is_found(tmp_path):
    folder, rng = folder_of(tmp_path), random.Random(0)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    assert MANIFEST in [path.name for path in paths]
    for number in range(60):
        path = paths[number % len(paths)]
        whole = path.read_bytes()
        bit = rng.randrange(8 * len(whole))
        broken = bytearray(whole)
        broken[bit // 8] ^= 1 << bit % 8
        path.write_bytes(broken)
        assert problem(folder, "one") is not None, (path, bit)
        path.write_bytes(whole)
    assert problem(folder, "one") is None
