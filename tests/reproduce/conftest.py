"""A hub on this machine with tiny models under the real names and small sets of the real sizes."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import threading
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import reproduce
from eval.published.__main__ import checkpoints
from eval.sts import STS_TEST
from tests.data.conftest import packed
from tests.eval.toys import sts_files

COMMIT = "c" * 40
DATA = "datasets/princeton-nlp/datasets-for-simcse"


@dataclass
class Hub:
    """Files by repository; a data set's name begins with `datasets/`. `down`: no answers."""

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    down: bool = False
    endpoint: str = ""


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def log_message(self, *args):
        pass

    def answer(self, with_body):
        path = self.path.partition("?")[0].strip("/")
        if self.hub.down:
            return self.head(503, {"Content-Length": "0"})
        if path.startswith("api/"):
            name = path.removeprefix("api/").removeprefix("models/")
            found = [repo for repo in self.hub.files if f"{name}/".startswith(f"{repo}/")]
            if not found or "additional_chat_templates" in path:
                return self.head(404, {"Content-Length": "0", "X-Error-Code": "EntryNotFound"})
            files = self.hub.files[found[0]].items()
            listed, siblings = [], []
            for file, content in files:
                size = len(content)
                lfs = {"sha256": digest(content), "size": size, "pointerSize": 1}
                listed.append({"type": "file", "path": file, "size": size, "oid": "0" * 40})
                siblings.append({"rfilename": file, "size": size, "lfs": lfs})
            info = {"id": found[0].removeprefix("datasets/"), "sha": COMMIT, "siblings": siblings}
            answer = listed if "/tree/" in path else info
            return self.send(json.dumps(answer).encode(), {}, with_body)
        repo, _, file = path.partition("/resolve/")
        content = self.hub.files.get(repo, {}).get(file.partition("/")[2])
        if content is None:
            return self.head(404, {"Content-Length": "0", "X-Error-Code": "EntryNotFound"})
        headers = {"ETag": f'"{digest(content)}"', "X-Repo-Commit": COMMIT}
        return self.send(content, headers, with_body)

    def send(self, body, headers, with_body):
        self.head(200, {"Content-Length": str(len(body)), **headers})
        if with_body:
            self.wfile.write(body)

    def head(self, status, headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def digest(content):
    return hashlib.sha256(content).hexdigest()


def model_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def graded_pairs(sentences: list[str]):
    """Pairs of a few sentences with random scores, for `tests.eval.toys.sts_files`."""
    draw = random.Random(0)

    def pairs(_, count):
        few = sentences[:50]
        return [(*draw.sample(few, 2), f"{draw.randint(0, 50) / 10}") for _ in range(count)]

    return pairs


@pytest.fixture
def hub(tiny_bert, sentences, tmp_path, monkeypatch):
    """A running hub that has all that `reproduce.py` fetches; the working folder is a new one."""
    hub = Hub()
    sizes = {task.name: task.pairs for task in STS_TEST}
    files = sts_files(graded_pairs(sentences), sizes)
    sets = {name: text.encode() for name, text in files.items()}
    archive = packed({f"senteval/downstream/{name}": content for name, content in sets.items()})
    text = "".join(f"{sentence}\n" for sentence in sentences).encode()
    hub.files[DATA] = {"senteval.tar": archive, "wiki1m_for_simcse.txt": text}
    names = [checkpoints()[name]["hub"] for name in reproduce.AUTHORS]
    for name in [*names, "bert-base-uncased", reproduce.CONDENSER]:
        hub.files[name] = model_files(tiny_bert)
    sums = tmp_path / "SHA256SUMS"
    lines = [f"{digest(body)}  senteval/downstream/{name}\n" for name, body in sets.items()]
    sums.write_text("".join(lines), encoding="ascii")
    monkeypatch.setattr("data.prepare.SUMS", sums)
    monkeypatch.setattr("data.prepare.WIKI_LINES", len(sentences))
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between attempts
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    cache = tmp_path / "cache"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    full = replace(reproduce.SCALES["full"], steps=12, size=(2, 32, 2), examples=len(sentences))
    monkeypatch.setitem(reproduce.SCALES, "full", full)
    shutil.copytree(Path(reproduce.__file__).parent / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    handler = type("Handler", (Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        hub.endpoint = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        template = f"{hub.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        constants = "huggingface_hub.constants"  # read from the environment when imported
        monkeypatch.setattr(f"{constants}.ENDPOINT", hub.endpoint)
        monkeypatch.setattr(f"{constants}.HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield hub
        server.shutdown()
