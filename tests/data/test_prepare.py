from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
from dataclasses import replace

import pytest

from common.errors import BadInput
from data.prepare import ARCHIVE, WIKI, main
from tests.data.conftest import ROWS
from tests.faults.forked import check_kills

DOWNSTREAM = "senteval/downstream/"
EXTRA = {
    "SNLI/s1.train": b"not wanted",
    "STS/STSBenchmark-fix/sts-test.csv": b"not wanted",
    "STS/STS13-en-test/correlation.pl": b"not wanted",
    "STS/STS13-en-test/00-readme.txt": b"terms",
}


def _sha256(body):
    return hashlib.sha256(body).hexdigest()


@pytest.mark.parametrize("prefix", ["", "downstream/", "./senteval/downstream/"])
def test_fills_the_layout(corpora, prefix):
    corpora.serve(EXTRA, prefix)
    rows = corpora.prepare("sts", "wiki1m")
    note = DOWNSTREAM + "STS/STS13-en-test/00-readme.txt"
    expected = {path: corpora.content[path] for path in corpora.sts} | {
        note: b"terms",
        WIKI.target: corpora.text,
    }
    assert corpora.placed() == expected
    assert not (corpora.root / ".download").exists()
    size = sum(len(corpora.content[path]) for path in corpora.sts if "STS13" in path)
    assert rows[1].startswith(f"STS13: 6 files, 6 lines, {size:,} bytes; digest pinned")
    assert rows[-1].startswith(f"wiki1m: 1 files, {ROWS:,} lines")


def test_a_second_run_asks_for_nothing(hub, corpora):
    corpora.prepare("sts", "wiki1m")
    before, asked = corpora.placed(), len(hub.requests)
    corpora.prepare("sts", "wiki1m")
    assert (len(hub.requests), corpora.placed()) == (asked, before)
    assert asked >= 2


def test_a_part_with_a_file_missing_is_completed_beside_the_others(hub, corpora):
    corpora.prepare("sts")
    (corpora.root / corpora.gold).unlink()
    (corpora.root / DOWNSTREAM / "STS/mine.txt").write_text("mine")
    corpora.prepare("sts")
    placed = corpora.placed()
    assert placed[corpora.gold] == corpora.content[corpora.gold]
    assert placed[DOWNSTREAM + "STS/mine.txt"] == b"mine"
    assert hub.count("GET") == 2


def test_an_extracted_file_with_another_digest_is_refused(hub, corpora):
    corpora.serve({corpora.gold: b"9.9\n"})
    with pytest.raises(BadInput) as caught:
        corpora.prepare("sts")
    for part in (corpora.gold, corpora.pinned[corpora.gold], _sha256(b"9.9\n")):
        assert part in str(caught.value)
    assert corpora.placed() == {}
    corpora.serve({})
    corpora.prepare("sts")
    assert set(corpora.placed()) == corpora.sts


def test_a_file_in_place_with_another_digest_is_not_overwritten(hub, corpora):
    corpora.prepare("sts")
    (corpora.root / corpora.gold).write_bytes(b"9.9\n")
    asked = len(hub.requests)
    with pytest.raises(BadInput, match=re.escape(corpora.gold) + ".*remove it"):
        corpora.prepare("sts")
    assert (corpora.root / corpora.gold).read_bytes() == b"9.9\n"
    assert len(hub.requests) == asked


@pytest.mark.parametrize("removed", [13, 14])
def test_too_few_rows_are_refused(hub, corpora, removed):
    """One row less, with and without a line end at the end of the file."""
    hub.files[WIKI.file] = corpora.text[:-removed]
    with pytest.raises(BadInput, match=f"{ROWS - 1} lines, but the published file has {ROWS}"):
        corpora.prepare("wiki1m")
    assert corpora.placed() == {}
    hub.files[WIKI.file] = corpora.text[:-1]
    assert f" {ROWS:,} lines" in corpora.prepare("wiki1m")[0]


def test_the_command_and_what_it_refuses(corpora, tmp_path, capsys):
    main(["wiki1m", "--data_dir", str(corpora.root)])
    assert capsys.readouterr().out.startswith(
        f"wiki1m: 1 files, {ROWS:,} lines, {len(corpora.text):,} bytes; digest not"
    )
    with pytest.raises(BadInput, match="unknown name 'wiki'"):
        main(["wiki"])
    (tmp_path / "text").write_text("a file where a folder belongs")
    with pytest.raises(BadInput, match="cannot fill"):
        main(["wiki1m", "--data_dir", str(tmp_path)])


@pytest.mark.parametrize("part", ["sts", pytest.param("wiki1m", marks=pytest.mark.slow)])
def test_a_killed_command_leaves_whole_files_and_the_same_command_ends(corpora, part):
    """While it downloads, unpacks and moves."""

    def at(folder):
        return replace(corpora, root=folder)

    check_kills(
        lambda folder: at(folder).prepare(part),
        corpora.root.parent,
        lambda folder: at(folder).placed(),
        6,
    )


@pytest.mark.parametrize("part", ["sts", "wiki1m"])
def test_a_body_that_is_always_cut_leaves_nothing_and_the_next_run_succeeds(hub, corpora, part):
    hub.cut = True
    with pytest.raises(BadInput, match=r"cannot download .*run again to resume"):
        corpora.prepare(part)
    assert corpora.placed() == {}
    assert not list(corpora.root.rglob("staged-*"))
    hub.cut = False
    corpora.prepare(part)
    assert (WIKI.target if part == "wiki1m" else corpora.gold) in corpora.placed()


def test_a_download_that_differs_from_the_announced_digest_is_refused(hub, corpora):
    hub.etag = "0" * 64
    with pytest.raises(BadInput, match="but the hub announced 0000"):
        corpora.prepare("wiki1m")
    assert corpora.placed() == {}
    hub.etag = "0" * 40  # of a file kept in git: says nothing about the sha256
    assert len(corpora.prepare("wiki1m")) == 1


def members(*named):
    """A tar archive of (name, content) or (name, content, type), whose links lead outside."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content, *flag in named:
            info = tarfile.TarInfo(name)
            info.size, info.linkname, info.type = (
                len(content),
                "/etc/passwd",
                *(flag or [tarfile.REGTYPE]),
            )
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


GOLD = "STS/STS13-en-test/STS.gs.FNWN.txt"
FULL = members(("./", b"", tarfile.DIRTYPE), (GOLD, bytes(range(256)) * 200))


@pytest.mark.parametrize(
    "archive",
    [
        *(
            members((GOLD, b"", flag))
            for flag in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)
        ),
        members(
            ("../x", b"x"),
            ("/etc/x", b"x"),
            (f"../{GOLD}", b"x"),
            ("STS/STS13-en-test/../../README", b"x"),
        ),
        members((GOLD, b"1"), (f"downstream/{GOLD}", b"2")),
        *(pack(FULL)[: len(pack(FULL)) // 2] for pack in (bytes, gzip.compress)),
        *(b"", b"<html>not found</html>" * 100, b"\x1f\x8bnot gzip", b"BZh9" * 200),
    ],
)
def test_a_hostile_or_damaged_archive_is_refused_and_writes_nothing(hub, corpora, archive):
    hub.files[ARCHIVE.file] = archive
    with pytest.raises(BadInput, match=r"incomplete or not the expected archive|files missing"):
        corpora.prepare("sts")
    assert (
        not [path for path in corpora.root.parent.rglob("*") if path.name == "x"]
        and corpora.placed() == {}
    )


def test_a_small_archive_that_unpacks_without_end_is_stopped(hub, corpora, monkeypatch):
    monkeypatch.setattr("data.prepare.MAX_BYTES", 100_000)
    hub.files[ARCHIVE.file] = gzip.compress(members((GOLD, bytes(200_000))))
    with pytest.raises(BadInput, match="over 100000 bytes"):
        corpora.prepare("sts")
