from __future__ import annotations

import hashlib

import pytest

from common.errors import BadInput
from data.prepare import ARCHIVE, LOCK, WIKI


@pytest.mark.parametrize("part", ["sts", "wiki1m"])
def test_a_body_that_is_always_cut_leaves_nothing_and_the_next_run_succeeds(hub, corpora, part):
    hub.cut = "always"
    with pytest.raises(BadInput, match=r"cannot download .*run again to resume"):
        corpora.prepare(part)
    assert corpora.placed() == {}
    assert not list(corpora.root.rglob("staged-*"))
    hub.cut = "never"
    corpora.prepare(part)
    assert (WIKI.target if part == "wiki1m" else corpora.gold) in corpora.placed()


def test_a_body_that_is_cut_once_is_resumed(hub, corpora):
    """The library keeps what it has in whole blocks of 10 MiB."""
    hub.cut = "once"
    corpora.prepare("wiki1m")
    assert hub.requests[-2:] == [f"GET {WIKI.file} 0", f"GET {WIKI.file} {10 * 2**20}"]
    assert corpora.placed() == {WIKI.target: corpora.text}


@pytest.mark.parametrize("status", [404, 401, 500])
def test_an_http_error_names_the_file_the_server_and_what_to_do(hub, corpora, status):
    hub.status = status
    with pytest.raises(BadInput, match=f"(?s)cannot download.*{status}") as caught:
        corpora.prepare("sts")
    message = str(caught.value)
    for part in (ARCHIVE.file, ARCHIVE.repo, hub.endpoint, "by hand", str(corpora.root / ARCHIVE.target)):
        assert part in message
    assert "\n" not in message
    assert corpora.placed() == {}


def test_a_download_that_differs_from_the_announced_digest_is_refused(hub, corpora):
    hub.etag = "0" * 64
    with pytest.raises(BadInput, match="but the hub announced 0000"):
        corpora.prepare("wiki1m")
    assert corpora.placed() == {}
    hub.etag = "0" * 40  # of a file kept in git: says nothing about the sha256
    assert len(corpora.prepare("wiki1m")) == 1


@pytest.mark.parametrize("name", [ARCHIVE.file, WIKI.file])
def test_content_that_changed_since_the_first_download_is_refused(hub, corpora, name):
    part, target = ("sts", corpora.gold) if name == ARCHIVE.file else ("wiki1m", WIKI.target)
    corpora.prepare(part)
    lock, good = (corpora.root / LOCK).read_text(), hub.files[name]
    (corpora.root / target).unlink()
    corpora.serve({"more": b""})
    if part == "wiki1m":
        hub.files[name] = corpora.text + b"more\n"
    with pytest.raises(BadInput) as caught:
        corpora.prepare(part)
    for text in (LOCK, *(hashlib.sha256(body).hexdigest() for body in (good, hub.files[name]))):
        assert text in str(caught.value)
    assert target not in corpora.placed()
    assert (corpora.root / LOCK).read_text() == lock
    hub.files[name] = good
    corpora.prepare(part)
    assert target in corpora.placed()


def test_a_text_in_place_that_changed_is_refused(corpora):
    corpora.prepare("wiki1m")
    (corpora.root / WIKI.target).write_bytes(corpora.text + b"more\n")
    with pytest.raises(BadInput, match="content changed"):
        corpora.prepare("wiki1m")


@pytest.mark.parametrize("text", ["{", "[]", '{"senteval.tar": 1}', '{"senteval.tar": {"sha256": "x"}}'])
def test_a_damaged_lock_file_is_an_error(corpora, text):
    corpora.root.mkdir()
    (corpora.root / LOCK).write_text(text)
    with pytest.raises(BadInput, match=LOCK):
        corpora.prepare("sts")
