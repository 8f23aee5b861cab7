"""Generated runs, and a browser without a window where one is installed.

The browser is driven over two pipes, so that no driver package is needed.
"""

import fcntl
import json
import os
import shutil
import subprocess

import pytest

from eval.encode import Encode
from eval.scores import rows_of, write_scores
from eval.sts import own_pairs
from eval.tasks import score_all
from models.encoder import load_encoder

BROWSERS = "chromium chromium-headless-shell chromium-browser google-chrome google-chrome-stable chrome".split()


class Browser:
    """Speaks the DevTools protocol: JSON messages with a zero byte at their end, on descriptors 3 and 4."""

    def __init__(self, program, folder):
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (to_read, to_write)]
        flags = ["--headless", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        flags += ["--no-sandbox"] if os.geteuid() == 0 else []  # which it refuses to make for root
        self._process = subprocess.Popen(
            [program, *flags, "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=lambda: [os.dup2(end, number) for end, number in zip(ends, (3, 4), strict=True)],
        )
        for end in (to_read, to_write, *ends):
            os.close(end)
        self._session, self._count, self._rest = None, 0, b""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.send("Page.enable")

    def send(self, method, **parameters):
        """One command and its answer; events in between are passed over."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._count:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _read(self):
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 16)
            assert part, "the browser has ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, address):
        self.send("Page.navigate", url="about:blank")  # an address that differs in its fragment alone loads nothing
        self.send("Page.navigate", url=address)
        self.run("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', done))")

    def run(self, expression):
        found = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def type(self, text):
        for letter in text:
            self.send("Input.dispatchKeyEvent", type="char", text=letter)

    def close(self):
        self._process.kill()  # its own child, by its id
        self._process.wait()
        os.close(self._out)
        os.close(self._in)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no Chromium or Chrome is installed")
    started = Browser(program, tmp_path_factory.mktemp("browser"))
    yield started
    started.close()


RECORD = {
    "settings": {
        "method": "simcse",
        "seed": 3,
        "learning_rate": 3e-05,
        "output_dir": "/secret/runs",
        "model_name_or_path": "/secret/models/mini-bert",
        "pooling": "cls_before_pooler",
    },
    "status": "finished",
    "steps": 20,
    "best": {"step": 10, "value": 71.5},
    "command": ["python", "run_unsup.py", "--data_dir=/secret/data"],
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "changed_files": 2,
    "trajectory": {"text": {"files": ["/secret/text/wiki.txt"], "rows": 1000}},
    "versions": {"python": "3.11.7", "torch": "2.13.0"},
    "hardware": {"device": "cpu"},
}
LOG = [
    {"step": 10, "epoch": 0.1, "contrastive": 1.5, "loss": 1.5},
    {"step": 10, "epoch": 0.1, "eval_dev_spearman": 71.5},
    {"step": 20, "epoch": 0.2, "contrastive": 0.5, "loss": 0.5},
    {"step": 20, "epoch": 0.2, "eval_dev_spearman": 70.25},
]


def write_record(folder, record=RECORD, log=LOG):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(record), encoding="utf-8")
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log), encoding="utf-8")
    return folder


@pytest.fixture
def write_run():
    return write_record


@pytest.fixture(scope="session")
def trained(tmp_path_factory, tiny_bert, dev_file):
    """Two finished runs with encoders and scores of the graded pairs: `first` and `second`, told apart by pooling."""
    folders = []
    for name, pooling in (("first", "avg"), ("second", "cls_before_pooler")):
        folder = write_record(tmp_path_factory.mktemp("runs") / name)
        encoder, tokenizer = load_encoder(str(tiny_bert), pooling)
        encoder.save(str(folder), tokenizer)
        results = score_all(Encode(encoder, tokenizer), [own_pairs(str(dev_file))], "")
        write_scores(folder / "scores.json", results, rows_of(results, name, name))
        folders.append(folder)
    return folders
