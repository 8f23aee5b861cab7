"""A stand-in for the hub on this machine: enough of its protocol for one repository."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from data.prepare import ARCHIVE, SUMS, WIKI, pinned, prepare
from tests.servers import serving

REPO = "princeton-nlp/datasets-for-simcse"
ROWS = 1000  # of the stand-in for wiki1m


@dataclass
class Hub:
    files: dict[str, bytes] = field(default_factory=dict)
    repo: str = REPO
    commit: str | None = "c" * 40
    etag: str | None = None
    cut: bool = False  # the body ends after five sixths
    requests: list[str] = field(default_factory=list)
    endpoint: str = ""

    def count(self, method: str) -> int:
        return sum(request.startswith(method) for request in self.requests)


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_HEAD(self):
        self._answer(with_body=False)

    def do_GET(self):
        self._answer(with_body=True)

    def log_message(self, *args):
        pass

    def _answer(self, with_body):
        hub, name = self.hub, self.path.rpartition("/")[2]
        if self.path.startswith(f"/api/datasets/{hub.repo}"):
            return self._listing(with_body)
        if f"/datasets/{hub.repo}/resolve/" not in self.path:
            return self._head(404, {"Content-Length": "0", "X-Error-Code": "RepoNotFound"})
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        hub.requests.append(f"{self.command} {name} {start}")
        if hub.cut and start:
            return None  # the connection closes without an answer
        if name not in hub.files:
            return self._head(404, {"X-Error-Code": "EntryNotFound"})
        body = hub.files[name]
        self._head(206 if start else 200, self._headers_of(body, start))
        if with_body:
            self.wfile.write(body[start : len(body) * 5 // 6 if hub.cut else len(body)])
        return None

    def _listing(self, with_body):
        files = self.hub.files.items()
        if "/data?" in self.path:  # there are no folders
            return self._head(404, {"Content-Length": "0", "X-Error-Code": "EntryNotFound"})
        answer = {
            "id": self.hub.repo,
            "sha": self.hub.commit,
            "siblings": [{"rfilename": name} for name, _ in files],
        }
        if "/tree/" in self.path:
            answer = [
                {"type": "file", "path": name, "size": len(body), "oid": "0" * 40}
                for name, body in files
            ]
        body = json.dumps(answer).encode()
        self._head(200, {"Content-Length": str(len(body))})
        return self.wfile.write(body) if with_body else None

    def _headers_of(self, body, start):
        digest = self.hub.etag or hashlib.sha256(body).hexdigest()
        headers = {"ETag": f'"{digest}"', "Content-Length": str(len(body) - start)}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        return headers | ({"X-Repo-Commit": self.hub.commit} if self.hub.commit else {})

    def _head(self, status, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


@pytest.fixture
def hub(monkeypatch):
    """A running stand-in that `HF_ENDPOINT` points to."""
    hub = Hub()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(
        "time.sleep", lambda seconds: None
    )  # the library waits between its attempts
    with serving(type("Handler", (_Handler,), {"hub": hub})) as hub.endpoint:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


@dataclass(frozen=True)
class Corpora:
    """A data folder to fill from the stand-in with small files under the published names."""

    hub: Hub
    root: Path
    content: dict[str, bytes] = field(
        default_factory=lambda: {path: f"content of {path}\n".encode() for path in pinned()}
    )
    text: bytes = b"one sentence\n" * ROWS
    gold: str = "senteval/downstream/STS/STS13-en-test/STS.gs.FNWN.txt"

    @property
    def pinned(self) -> dict[str, str]:
        return {path: hashlib.sha256(body).hexdigest() for path, body in self.content.items()}

    @property
    def sts(self) -> set[str]:
        return {path for path in self.content if "/STS/" in path or "/SICK/" in path}

    def prepare(self, *names: str) -> list[tuple]:
        return prepare(names, self.root)

    def placed(self) -> dict[str, bytes]:
        """Every file that a reader could find."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file() and ".download" not in path.parts
        }

    def serve(self, changed: dict[str, bytes | None], prefix: str = "") -> None:
        """Put an archive on the hub: the small files with these changes, None for one left out."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for name, body in {**self.content, **changed}.items():
                if body is not None:
                    info = tarfile.TarInfo(prefix + name.removeprefix("senteval/downstream/"))
                    info.size = len(body)
                    tar.addfile(info, io.BytesIO(body))
        self.hub.files[ARCHIVE.file] = packed.getvalue()


@pytest.fixture
def corpora(hub, tmp_path, monkeypatch):
    corpora = Corpora(hub, tmp_path / "corpora")
    sums = tmp_path / SUMS.name
    sums.write_text("".join(f"{digest}  {path}\n" for path, digest in corpora.pinned.items()))
    monkeypatch.setattr("data.prepare.SUMS", sums)
    monkeypatch.setattr("data.prepare.WIKI", replace(WIKI, min_lines=ROWS))
    corpora.serve({})
    hub.files[WIKI.file] = corpora.text
    return corpora


@pytest.fixture(params=["bert_tokenizer", "roberta_tokenizer"])
def tokenizer(request):
    """Both kinds of tokenizer in turn."""
    return request.getfixturevalue(request.param)
