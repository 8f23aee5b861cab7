"""A missing model is refused in one line, without waiting long for a hub that does not answer."""

import json
import os
import re
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler

import pytest

from common.errors import BadInput
from common.model_place import check_place
from models.loading import load_config, load_tokenizer
from tests.servers import serving
from tests.sources import ROOT

SAID = {  # name on the hub: its answer, and ours
    "a/missing": ((404, "RepoNotFound"), "folder, and no such model on the hub .*HF_TOKEN.; name a"),
    "a/private": ((401, "RepoNotFound"), "folder, and no such model on the hub"),
    "a/broken": ((503, None), "folder, and the hub could not be queried .*503.*; name a"),
    "a/bare": ((404, "EntryNotFound"), None),
    "a/gated": ((403, "GatedRepo"), None),
    "a/there": ((200, None), None),
}
ALL = f"""
import json
from common.errors import BadInput
from common.model_place import check_place
found = dict.fromkeys({[*SAID]})
for name in found:
    try:
        check_place(name)
    except BadInput as error:
        found[name] = str(error)
print(json.dumps(found))
"""
COMMANDS = {
    "run_unsup.py": ["--method=simcse", "--train_file=x", "--output_dir=runs/x", "--model_name_or_path", "runz/bert"],
    "run_pretrain_aux.py": ["--train_file=x", "--output_dir=runs/x", "--model_name_or_path", "runz/bert"],
    "-m adapt": ["runz/bert", "--text=x", "--output=runs/x"],
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "here" / "runs" / "mini-bert").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")


def asking(address, *command):
    env = {"HF_ENDPOINT": address, "HF_HUB_OFFLINE": "0", "HF_HUB_ETAG_TIMEOUT": "1",
           "NO_PROXY": "127.0.0.1", "PYTHONPATH": str(ROOT)}  # fmt: skip
    return subprocess.run([sys.executable, *command], env=os.environ | env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_hub_that_never_answers_is_asked_once(here, command):
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = command.split() if command.startswith("-m") else [ROOT / command]
        done = asking(f"http://127.0.0.1:{server.getsockname()[1]}", *program, *COMMANDS[command])
        server.settimeout(0.1)
        server.accept()
        with pytest.raises(TimeoutError):
            server.accept()
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    expected = "'runz/bert': no such folder, and the hub did not answer in 1 s .*; did you mean 'runs/mini-bert'"
    assert re.search(expected, done.stderr)


def test_the_hubs_answer_about_a_model_is_reported(here):
    class Hub(BaseHTTPRequestHandler):
        def do_HEAD(self):
            status, code = SAID["/".join(self.path.split("/")[1:3])][0]
            self.send_response(status)
            facts = {"X-Error-Code": code, "ETag": "e", "X-Repo-Commit": "c", "Content-Length": "0"}
            for name, value in facts.items():
                self.send_header(name, value or "")
            self.end_headers()

        def log_message(self, *args):
            pass

    with serving(Hub) as address:
        found = json.loads(asking(address, "-c", ALL).stdout)
    for name, (_, said) in SAID.items():
        assert (found[name] is None) if said is None else re.search(said, found[name]), name


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("runs/min-bert", r"folder; did you mean 'runs/mini-bert'\? .for a model on the hub: hf download "),
        ("../her/rums/mini-bert/", r"folder; did you mean '../here/runs/mini-bert'\?$"),
        ("../here/runs/x", "folder; name a folder with a model or a finished run$"),
        ("/nowhere/x", "folder; name a folder"),
        ("a/b/c", "folder; name a folder"),
        ("no such.bert", "folder; name a folder"),
        ("google/bert", r"the hub was not queried \(HF_HUB_OFFLINE is set\); name a folder"),
    ],
)
def test_the_hub_is_not_asked_about_a_local_path(path, said, here, monkeypatch):
    monkeypatch.setattr("common.model_place._ask", lambda *_: pytest.fail("asked"))
    for load in (load_config, load_tokenizer):
        with pytest.raises(BadInput, match=said):
            load(path)


def test_the_hub_is_not_asked_about_a_cached_model(here, tiny_bert, tmp_path, monkeypatch):
    model = tmp_path / "cache" / "models--google--bert"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("1")
    (model / "snapshots").mkdir()
    (model / "snapshots" / "1").symlink_to(tiny_bert)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("common.model_place._ask", lambda *_: pytest.fail("asked"))
    assert load_config("google/bert").hidden_size == 32
    for offline in (True, False):
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", offline)
        check_place("google/bert")
