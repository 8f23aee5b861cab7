"""A run folder to export, and a stand-in for the hub on this machine that takes an upload and gives it back."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

import pytest
import torch

from data.template import mask_place, templated
from models.encoder import SentenceEncoder
from models.heads import Head, Normalize, projection_named
from models.loading import load_backbone, load_tokenizer
from tests.servers import serving

_STS12 = {"task": "STS12", "split": "test", "mode": "test", "metric": "spearman", "aggregation": "all", "n": 3108}
SCORES = [
    _STS12 | {"value": 62.376, "headline": True},
    _STS12 | {"aggregation": "mean of subsets", "value": 60.125, "headline": False},
    _STS12 | {"task": "STS-B", "aggregation": "single", "n": 1379, "value": 70.448, "headline": True},
    _STS12 | {"task": "Avg.", "aggregation": "mean of tasks", "n": 4487, "value": 66.415, "headline": True},
]


def record() -> dict:
    """A run.json as run_unsup.py writes it, in short."""
    trajectory = {
        "method": "simcse",
        "pooling": "avg",
        "temperature": 0.05,
        "max_length": 32,
        "learning_rate": 3e-5,
        "per_device_train_batch_size": 64,
        "max_steps": 500,
        "num_train_epochs": 1.0,
        "seed": 17,
        "world_size": 1,
        "script": "run_unsup.py",
        "start": "ab" * 32,
        "text": {"columns": 1, "files": ["mine.txt"], "rows": 1234, "sha256": "cd" * 32, "empty_lines_dropped": 0},
    }
    return {
        "format": 1,
        "script": "run_unsup.py",
        "command": ["python", "run_unsup.py", "--config", "configs/simcse-mini.yaml", "--bf16"],
        "settings": {"method": "simcse", "seed": 17, "model_name_or_path": "runs/aux", "output_dir": "runs/x"},
        "trajectory": trajectory,
        "best": {"step": 375, "value": 80.92},
        "steps": 500,
        "status": "finished",
        "commit": "ef" * 20,
        "changed_files": 0,
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        "hardware": {"device": "cpu", "machine": "x86_64", "threads": 1},
    }


@pytest.fixture
def make_run(tiny_bert, tmp_path):
    """A run folder: `pooling` and `head` of its model, `run` and `scores` in its files (None: no such file)."""

    def make(pooling="avg", head=None, run=None, scores=SCORES, name="run"):
        folder = tmp_path / name
        backbone = load_backbone(str(tiny_bert))
        torch.manual_seed(0)
        trained = Head(Normalize()) if head == "unit" else None
        if head and trained is None:
            trained = projection_named(head, backbone.config.hidden_size, 0.2)
            trained(torch.randn(16, backbone.config.hidden_size))
        tokenizer = load_tokenizer(str(tiny_bert))
        if pooling == "mask":
            tokenizer = templated(tokenizer, "the {text} {mask}.")
        encoder = SentenceEncoder(backbone, pooling, trained, 64, place=mask_place(tokenizer))
        encoder.eval().save(str(folder), tokenizer)
        for file, content in (("run.json", run), ("scores.json", scores)):
            if content is not None:
                (folder / file).write_text(json.dumps(content))
        return folder

    return make


@dataclass
class Hub:
    """What the stand-in holds and how it behaves."""

    token: str = "hf_" + "t" * 20
    cut: bool = False  # the connection ends in the middle of a large file
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    visibility: dict[str, str | None] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)
    endpoint: str = ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *args):
        pass

    def do_POST(self):
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        body = self._body()
        if self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self._json({"error": "Invalid credentials"}, 401)
        if path == "/api/validate-yaml":
            return self._json({"errors": [], "warnings": []})
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path.endswith(".git/info/lfs/objects/batch"):
            return self._batch(json.loads(body))
        repo, _, action = path.removeprefix("/api/models/").rpartition("/main")[0].rpartition("/")
        if action == "preupload":
            modes = {True: "lfs", False: "regular"}
            files = [
                {"path": f["path"], "uploadMode": modes[f["path"].endswith("safetensors")], "shouldIgnore": False}
                for f in json.loads(body)["files"]
            ]
            return self._json({"files": files})
        return self._commit(repo, [json.loads(line) for line in body.splitlines()])

    def do_PUT(self):
        if self.hub.cut:
            self.rfile.read(int(self.headers["Content-Length"]) // 2)
            self.close_connection = True
            return None
        body = self._body()
        self.hub.large[hashlib.sha256(body).hexdigest()] = body
        return self._json({})

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = unquote(urlsplit(self.path).path).strip("/")
        if path.startswith("api/models/"):
            repo, _, rest = path.removeprefix("api/models/").partition("/tree/")
            files = self.hub.repos.get(repo)
            if files is None:
                return self._json({"error": "no such repository"}, 404)
            listed = [{"type": "file", "path": f, "size": len(b), "oid": "0" * 40} for f, b in files.items()]
            return self._json(listed if rest else {"id": repo, "sha": "0" * 40})
        repo, _, file = path.partition("/resolve/main/")
        body = self.hub.repos[repo][file]
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", "c" * 40)
        return self._send(body)

    def _create(self, asked):
        repo = f"{asked['organization']}/{asked['name']}"
        if repo in self.hub.repos:
            return self._json({"error": "exists", "url": f"{self.hub.endpoint}/{repo}"}, 409)
        self.hub.repos[repo], self.hub.visibility[repo] = {}, asked.get("visibility")
        return self._json({"url": f"{self.hub.endpoint}/{repo}"})

    def _batch(self, asked):
        objects = [
            {**file, "actions": {"upload": {"href": f"{self.hub.endpoint}/large/{file['oid']}"}}}
            for file in asked["objects"]
        ]
        return self._json({"transfer": "basic", "objects": objects})

    def _commit(self, repo, lines):
        files = self.hub.repos[repo]
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.large[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        self.hub.commits.append(repo)
        return self._json({"commitOid": "c" * 40, "commitUrl": f"{self.hub.endpoint}/{repo}/commit/{'c' * 40}"})

    def _body(self):
        if "Content-Length" in self.headers:
            return self.rfile.read(int(self.headers["Content-Length"]))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _json(self, content, status=200):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self._send(json.dumps(content).encode())

    def _send(self, body):
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def hub(monkeypatch):
    """A running stand-in that `HF_ENDPOINT` points to; files go by plain HTTP, as with HF_HUB_DISABLE_XET=1."""
    hub = Hub()
    monkeypatch.setenv("HF_TOKEN", hub.token)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # the library waits between its attempts
    with serving(type("Handler", (_Handler,), {"hub": hub})) as hub.endpoint:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub
