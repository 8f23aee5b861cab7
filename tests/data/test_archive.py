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
    found = extract(path, target, lambda name: f"new/{name}" if name.startswith("a/") else None)
    assert found == (["new/a/one.txt", "new/a/two"], 1)
    assert (target / "new/a/one.txt").read_bytes() == b"1\n"
    assert (target / "new/a/two").read_bytes() == b""
    assert sorted(p.name for p in target.rglob("*") if p.is_file()) == ["one.txt", "two"]


BAD = {
    "absolute": (("/etc/x", b"x"), "absolute"),
    "parent": (("../x", b"x"), "leaves the target folder"),
    "inner parent": (("a/../../x", b"x"), "leaves the target folder"),
    "parent folder": (("a/..", b"", {"type": tarfile.DIRTYPE}), "leaves the target folder"),
    "backslash": (("..\\x", b"x"), "unusable"),
    "drive": (("C:/x", b"x"), "unusable"),
    "symlink": (("x", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}), "link to '/etc/passwd'"),
    "hard link": (("x", b"", {"type": tarfile.LNKTYPE, "linkname": "ok"}), "link to 'ok'"),
    "fifo": (("x", b"", {"type": tarfile.FIFOTYPE}), "not a regular file"),
    "device": (("x", b"", {"type": tarfile.CHRTYPE}), "not a regular file"),
    "contiguous": (("x", b"", {"type": tarfile.CONTTYPE}), "special entry, not a regular file"),
    "duplicate": (("./ok", b"other"), "occurs twice"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("wanted", [True, False])
def test_malicious_members_are_refused(tmp_path, target, kind, wanted):
    member, message = BAD[kind]
    path = _tar(tmp_path / "x.tar", ("ok", b"ok"), member)
    with pytest.raises(BadInput, match=message):
        extract(path, target, _same if wanted else lambda name: None)
    written = [p for p in tmp_path.rglob("*") if p != path and not p.is_dir()]
    assert written == ([target / "ok"] if wanted else [])
    assert (target / "ok").exists() is wanted


def test_two_members_for_one_place_are_refused(tmp_path, target):
    path = _tar(tmp_path / "x.tar", ("x", b"1"), ("downstream/x", b"2"))
    with pytest.raises(BadInput, match="'downstream/x' has the path of another member"):
        extract(path, target, lambda name: "x")
    assert (target / "x").read_bytes() == b"1"


@pytest.mark.parametrize("wanted", [True, False])
def test_too_large_a_member_is_refused_unread(tmp_path, target, monkeypatch, wanted):
    monkeypatch.setattr(archive, "MAX_MEMBER_BYTES", 10)
    fits = _tar(tmp_path / "fits.tar", ("a", b"x" * 10))
    assert extract(fits, target, _same) == (["a"], 0)
    path = _tar(tmp_path / "x.tar", ("b", b"x" * 11))
    with pytest.raises(BadInput, match="11 bytes, not 0 to 10"):
        extract(path, target, _same if wanted else lambda name: None)
    assert not (target / "b").exists()


@pytest.mark.parametrize(("limit", "value"), [("MAX_MEMBERS", 2), ("MAX_TOTAL_BYTES", 20_480)])
def test_too_much_in_total_is_refused(tmp_path, target, monkeypatch, limit, value):
    members = [(str(i), b"x" * 9000) for i in range(3)]
    path = _tar(tmp_path / "x.tar", *members)
    assert len(extract(path, target / "..", _same)[0]) == 3
    monkeypatch.setattr(archive, limit, value)
    with pytest.raises(BadInput, match=f"(more than|or) {value} (members|bytes)"):
        extract(path, target, _same)
    assert not (target / "2").exists()


def test_a_small_gzip_that_unpacks_without_end_is_stopped(tmp_path, target, monkeypatch):
    """The bytes are no member at all: an extended header, which `tarfile` would read into memory whole."""
    monkeypatch.setattr(archive, "MAX_TOTAL_BYTES", 100_000)
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
    with pytest.raises(BadInput, match=r"x\.tar.*download it again"):
        extract(path, target, _same)


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>\n" * 100, b"\x1f\x8bnot gzip", b"BZh9" * 200])
def test_a_file_that_is_not_a_tar_archive_is_refused(tmp_path, target, content):
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="incomplete or no tar archive"):
        extract(path, target, _same)


def test_a_sparse_member_is_refused(tmp_path, target):
    """Its content is larger than what is stored, so the sizes checked would be the wrong ones."""
    fields = {"pax_headers": {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "99999"}}
    path = _tar(tmp_path / "x.tar", ("x", b"1\n0\n512\n".ljust(512, b"\0") + bytes(512), fields))
    with pytest.raises(BadInput, match="refused"):
        extract(path, target, _same)


@pytest.mark.parametrize("names", [["."], ["a", "a/b"], ["a/b", "a"], ["a/b", "a/b/c"]])
def test_a_member_in_the_place_of_another_or_below_a_file_is_refused(tmp_path, target, names):
    path = _tar(tmp_path / "x.tar", *((name, b"x") for name in names))
    with pytest.raises(BadInput, match="the path of another member, or one below a file"):
        extract(path, target, _same)


@pytest.mark.parametrize("middle", ["header", "zeros", "end"])
def test_an_archive_that_ends_before_its_members_do_is_refused(tmp_path, target, middle):
    """`tarfile` itself takes each of these for the end, and says nothing of what follows."""
    path = _tar(tmp_path / "x.tar", ("one", b"1"), ("two", b"2"))
    content = bytearray(path.read_bytes())
    second = content.index(b"two\0")
    if middle == "header":
        content[second] ^= 1
    elif middle == "zeros":
        content[second : second + 512] = bytes(512)
    else:
        del content[second:]
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"incomplete or no tar archive|data after the end"):
        extract(path, target, _same)


def test_a_negative_size_is_refused(tmp_path, target):
    header = tarfile.TarInfo("x")
    header.size = -5
    path = tmp_path / "x.tar"
    path.write_bytes(header.tobuf(tarfile.GNU_FORMAT) + b"x" * 512 + bytes(1024))
    with pytest.raises(BadInput, match="-5 bytes"):
        extract(path, target, _same)
