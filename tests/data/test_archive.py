from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from common.errors import BadInput
from data import archive
from data.archive import extract


def _tar(path, *members, mode="w"):
    """Write an archive of (name, content) or (name, content, {header field: value})."""
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as tar:
        for name, content, *fields in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in (fields[0] if fields else {}).items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture
def target(tmp_path):
    folder = tmp_path / "in" / "target"
    folder.mkdir(parents=True)
    return folder


def _same(name):
    return name


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_wanted_members_are_extracted_and_the_others_counted(tmp_path, target, mode):
    members = [
        ("./", b"", {"type": tarfile.DIRTYPE}),
        ("./a/one.txt", b"1\n"),
        ("a//./two", b""),
        ("b/three", b"3"),
    ]
    path = _tar(tmp_path / "x.tar", *members, mode=mode)
    extracted = extract(path, target, lambda name: f"new/{name}" if name.startswith("a/") else None)
    assert extracted == (["new/a/one.txt", "new/a/two"], 1)
    assert (target / "new/a/one.txt").read_bytes() == b"1\n"
    assert (target / "new/a/two").read_bytes() == b""
    assert sorted(p.name for p in target.rglob("*") if p.is_file()) == ["one.txt", "two"]


HOSTILE = {
    "absolute": ("/etc/x", b"x"),
    "parent": ("../x", b"x"),
    "inner parent": ("a/../../x", b"x"),
    "symlink": ("x", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}),
    "hard link": ("x", b"", {"type": tarfile.LNKTYPE, "linkname": "ok"}),
    "fifo": ("x", b"", {"type": tarfile.FIFOTYPE}),
    "device": ("x", b"", {"type": tarfile.CHRTYPE}),
    "duplicate": ("./ok", b"other"),
    "below a file": ("ok/x", b"x"),
}


@pytest.mark.parametrize("member", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("wanted", [True, False])
def test_hostile_members_are_refused_or_skipped_and_write_nothing_outside(tmp_path, target, member, wanted):
    path = _tar(tmp_path / "x.tar", ("ok", b"ok"), member)
    try:
        extract(path, target, lambda name: name if wanted or name == "ok" else None)
    except BadInput:
        assert wanted or member[0] == "./ok"
    written = {file: file.read_bytes() for file in tmp_path.rglob("*") if file != path and not file.is_dir()}
    inside = {target / "etc/x": b"x"} if wanted and member[0] == "/etc/x" else {}
    assert written == {target / "ok": b"ok"} | inside


def test_two_members_for_one_path_are_refused(tmp_path, target):
    path = _tar(tmp_path / "x.tar", ("x", b"1"), ("downstream/x", b"2"))
    with pytest.raises(BadInput, match="two members for x"):
        extract(path, target, lambda name: "x")
    assert (target / "x").read_bytes() == b"1"


def test_a_small_gzip_that_unpacks_without_end_is_stopped(tmp_path, target, monkeypatch):
    """The bytes are no member at all: an extended header, which `tarfile` would read into memory whole."""
    monkeypatch.setattr(archive, "MAX_BYTES", 100_000)
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 8_000_000
    path = tmp_path / "x.tar"
    path.write_bytes(gzip.compress(header.tobuf() + bytes(8_000_000)))
    with pytest.raises(BadInput, match="unpacks to more than 100000 bytes"):
        extract(path, target, _same)


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_cut_archive_is_an_error(tmp_path, target, mode):
    noise = bytes((i * i) % 251 for i in range(50_000))
    path = _tar(tmp_path / "x.tar", ("a", noise), mode=mode)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    with pytest.raises(BadInput, match=r"x\.tar: incomplete"):
        extract(path, target, _same)


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>\n" * 100, b"\x1f\x8bnot gzip", b"BZh9" * 200])
def test_a_file_that_is_not_a_tar_archive_is_refused(tmp_path, target, content):
    (tmp_path / "x.tar").write_bytes(content)
    with pytest.raises(BadInput, match="incomplete or not the expected archive"):
        extract(tmp_path / "x.tar", target, _same)
