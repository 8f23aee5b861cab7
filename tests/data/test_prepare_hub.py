from __future__ import annotations

import hashlib
import io
import tarfile

import pytest

from common.errors import BadInput
from data.prepare import ARCHIVE, LOCK, WIKI


@pytest.mark.parametrize("part", ["sts", "wiki1m"])
def test_a_body_that_is_always_cut_leaves_nothing_and_the_next_run_succeeds(hub, corpora, part):
    hub.cut = "always"
    with pytest.raises(BadInput, match=r"cannot download .*run the same command again"):
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


ADVICE = {404: "a mirror that has it", 401: "HF_TOKEN", 403: "HF_TOKEN", 500: "run the same"}


@pytest.mark.parametrize(("status", "advice"), ADVICE.items())
def test_an_http_error_names_the_file_the_server_and_what_to_do(hub, corpora, status, advice):
    hub.status = status
    with pytest.raises(BadInput, match=f"(?s)cannot download.*{status}.*; .*{advice}") as caught:
        corpora.prepare("sts")
    message = str(caught.value)
    for part in (ARCHIVE.file, ARCHIVE.repo, hub.endpoint, "by hand", str(corpora.root / ARCHIVE.target)):
        assert part in message
    assert "\n" not in message
    assert corpora.placed() == {}


def test_an_unreachable_server_is_reported(hub, corpora, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(BadInput, match=r"127\.0\.0\.1:9/.*refused"):
        corpora.prepare("sts")
    assert hub.requests == []


def test_offline_mode_is_respected(hub, corpora, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(BadInput, match="unset HF_HUB_OFFLINE"):
        corpora.prepare("wiki1m")
    assert hub.requests == []


def test_a_server_that_is_not_a_hub_is_refused(hub, corpora):
    hub.commit = None
    with pytest.raises(BadInput, match="not a hub"):
        corpora.prepare("sts")


def test_a_download_that_differs_from_the_announced_digest_is_refused(hub, corpora):
    hub.etag = "0" * 64
    with pytest.raises(BadInput, match="but the hub announced 0000"):
        corpora.prepare("wiki1m")
    assert corpora.placed() == {}
    hub.etag = "0" * 40  # of a file kept in git: says nothing about the sha256
    assert len(corpora.prepare("wiki1m")) == 1


def test_a_malicious_archive_leaves_nothing(hub, corpora):
    packed = io.BytesIO(hub.files[ARCHIVE.file])
    with tarfile.open(fileobj=packed, mode="a") as tar:
        tar.addfile(tarfile.TarInfo("../../../outside"))
    hub.files[ARCHIVE.file] = packed.getvalue()
    with pytest.raises(BadInput, match="leaves the target folder"):
        corpora.prepare("sts")
    assert corpora.placed() == {}
    assert [path for path in corpora.root.parent.rglob("*") if path.name in ("outside", ARCHIVE.file)] == []


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
