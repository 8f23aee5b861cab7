"""A hub on this machine with tiny models under the real names and small sets of the real sizes."""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
import tarfile
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

import reproduce
from eval.published.__main__ import checkpoints
from eval.sts import STS_TEST
from tests.servers import serving

COMMIT = "c" * 40
DATA = "datasets/princeton-nlp/datasets-for-simcse"
SUBSETS = {  # of the published sets; the last subset has the rest of the published pairs
    "STS12": "MSRpar MSRvid SMTeuroparl surprise.OnWN surprise.SMTnews",
    "STS13": "FNWN headlines OnWN",
    "STS14": "deft-forum deft-news headlines images OnWN tweet-news",
    "STS15": "answers-forums answers-students belief headlines images",
    "STS16": "answer-answer headlines plagiarism postediting question-question",
}


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
            if "/tree/" in path:
                listed = [
                    {"type": "file", "path": file, "size": len(content), "oid": "0" * 40}
                    for file, content in files
                ]
                return self.send(json.dumps(listed).encode(), {}, with_body)
            body: dict = {"id": found[0].removeprefix("datasets/"), "sha": COMMIT}
            body["siblings"] = [
                {
                    "rfilename": file,
                    "size": len(content),
                    "lfs": {"sha256": digest(content), "size": len(content), "pointerSize": 1},
                }
                for file, content in files
            ]
            return self.send(json.dumps(body).encode(), {}, with_body)
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


def sts_files(sentences: list[str]) -> dict[str, bytes]:
    """Every set in SentEval's layout, with the published number of pairs of a few sentences."""
    draw = random.Random(0)

    def pairs(count):
        return [
            (*draw.sample(sentences[:50], 2), f"{draw.randint(0, 50) / 10}") for _ in range(count)
        ]

    files = {}
    for task in STS_TEST:
        if task.name not in SUBSETS:
            continue
        names = SUBSETS[task.name].split()
        folder = f"STS/{task.name}-en-test"
        for name in names:
            few = 20 if name != names[-1] else task.pairs - 20 * (len(names) - 1)
            rows = pairs(few)
            files[f"{folder}/STS.input.{name}.txt"] = "".join(f"{a}\t{b}\n" for a, b, _ in rows)
            files[f"{folder}/STS.gs.{name}.txt"] = "".join(f"{gold}\n" for _, _, gold in rows)
    for split, count in (("train", 10), ("dev", 1500), ("test", 1379)):
        lines = [
            f"genre\tfile\t2012\t{n}\t{g}\t{a}\t{b}\n" for n, (a, b, g) in enumerate(pairs(count))
        ]
        files[f"STS/STSBenchmark/sts-{split}.csv"] = "".join(lines)
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    for name, count in (("train", 10), ("trial", 10), ("test_annotated", 4927)):
        lines = [f"{n}\t{a}\t{b}\t{g}\tNEUTRAL\n" for n, (a, b, g) in enumerate(pairs(count))]
        files[f"SICK/SICK_{name}.txt"] = header + "".join(lines)
    return {name: text.encode() for name, text in files.items()}


@pytest.fixture
def hub(tiny_bert, sentences, tmp_path, monkeypatch):
    """A running hub that has all that `reproduce.py` fetches; the working folder is a new one."""
    hub = Hub()
    sets = sts_files(sentences)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in sets.items():
            info = tarfile.TarInfo(f"senteval/downstream/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    text = "".join(f"{sentence}\n" for sentence in sentences).encode()
    hub.files[DATA] = {"senteval.tar": packed.getvalue(), "wiki1m_for_simcse.txt": text}
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
    monkeypatch.setattr("training.result.draw_log", lambda *_: None)  # slow, and tested elsewhere
    cache = tmp_path / "cache"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    full = replace(reproduce.SCALES["full"], steps=12, size=(2, 32, 2), examples=len(sentences))
    monkeypatch.setitem(reproduce.SCALES, "full", full)
    shutil.copytree(Path(reproduce.__file__).parent / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    with serving(type("Handler", (Handler,), {"hub": hub})) as hub.endpoint:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        template = f"{hub.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        constants = "huggingface_hub.constants"  # read from the environment when imported
        monkeypatch.setattr(f"{constants}.ENDPOINT", hub.endpoint)
        monkeypatch.setattr(f"{constants}.HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield hub
