"""Published checkpoints: the list, the comparison, and fetching and scoring them from a stand-in for the hub."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

import eval.published.__main__ as command
from common.errors import BadInput
from data.template import templated
from eval.compare.sides import published
from eval.published.__main__ import checkpoints, compared
from eval.scores import Key, row
from eval.sts import correlation, own_pairs
from models.encoder import load_encoder
from models.loading import load_backbone, load_config, load_tokenizer
from models.pooling import POOLINGS
from tests.folders import shard
from tests.servers import serving
from tests.sources import ROOT, check_entry

COMMIT = "c" * 40


def test_every_entry_is_well_formed_and_its_record_has_a_score():
    for name, entry in checkpoints().items():
        needed = {"name": str, "hub": str, "source": str}
        more = {"pooling": str, "record": str, "revision": str, "template": str, "stop": bool, "note": str}
        check_entry(entry, needed, more)
        assert entry["name"] == name and entry["hub"].count("/") == 1
        assert entry.get("pooling", "avg") in {*POOLINGS, "pooler"}
        assert len(entry.get("revision", COMMIT)) == 40
        if "record" in entry:
            keys = {(key.split, key.metric) for key in published(entry["record"]).scores}
            assert keys & {("test", "spearman"), ("test", "accuracy")}, name


def test_a_difference_of_two_hundredths_is_none():
    record = published("simcse-bert-base")

    def line(task, value, metric="spearman", headline=True):
        [line] = compared([{**row(task, "test", metric, "all", 9, value), "headline": headline}], record)
        return line["ours"], line.get("published"), line.get("difference"), line.get("verdict")

    assert line("STS12", 68.4249) == (68.42, 68.40, 0.02, "equal")
    assert line("STS12", 68.3751) == (68.38, 68.40, -0.02, "equal")
    assert line("Avg.", 76.28) == (76.28, 76.25, 0.03, "differs")
    assert line("MR", 81.0, "accuracy") == (81.0, 81.18, -0.18, "differs")
    assert line("STS17-en-de", 50.0) == (50.0, None, None, None)
    assert compared([{**row("STS12", "test", "pearson", "all", 9, 1.0), "headline": False}], record) == []
    rows = [{**row(task, "test", "spearman", "all", 9, 80.0), "headline": True} for task in ("STS12", "Avg.")]
    assert [line["task"] for line in compared(rows, published("all-minilm-l6-v2"))] == ["STS12"], "another SICK-R"


def test_sick_r_counts_the_pairs_of_the_published_score(tmp_path):
    sick = tmp_path / "senteval" / "downstream" / "SICK"
    sick.mkdir(parents=True)
    for file, size in {"SICK_train.txt": 4500, "SICK_trial.txt": 500, "SICK_test_annotated.txt": 4927}.items():
        rows = [f"{i}\ta dog {i}\ta cat {i}\t{1 + i % 5}\tNEUTRAL\n" for i in range(size)]
        (sick / file).write_text("pair_ID\tsentence_A\tsentence_B\trelatedness_score\tjudgment\n" + "".join(rows))
    counts = []
    for record in ("simcse-bert-base", "all-minilm-l6-v2"):
        [task] = [task for task in command.tasks_of(["sts"], published(record)) if task.name == "SICK-R"]
        [pairs] = task.load(tmp_path).values()
        counts.append(len(pairs.gold))
    assert counts == [4927, 9927]


def test_a_foreign_file_is_kept(tiny_bert, small_task, tmp_path):
    for name, content in {"published.md": "# Mine", "published.json": '[{"name": "mine"}]'}.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(BadInput, match=f"{name}: .*content this command did not write"):
            command.main([f"infocse-bert-base={tiny_bert}", f"--output={tmp_path / 'published'}"])
        assert (tmp_path / name).read_text() == content
        (tmp_path / name).unlink()


def test_an_unknown_name_is_refused_and_no_name_lists_all(capsys):
    with pytest.raises(BadInput, match="unknown checkpoint 'infocse'"):
        command.main(["infocse"])
    assert command.main([]) == []
    assert "| ffgcc/InfoCSE-bert-base " in capsys.readouterr().out


@pytest.fixture
def small_task(dev_file, monkeypatch):
    """Own pairs in place of the seven sets, under the name of one of them."""
    task = replace(own_pairs(str(dev_file)), name="STS12", split="test")
    monkeypatch.setattr(command, "tasks_of", lambda groups, record: [task])
    return task


def test_a_local_copy_is_scored_and_the_page_keeps_what_was_there(tiny_bert, small_task, tmp_path, capsys):
    name, page = "infocse-bert-base", tmp_path / "published.md"
    [entry] = command.main([f"{name}={tiny_bert}", f"--output={tmp_path / 'published'}"])
    [score] = entry["scores"]
    assert score["published"] == 70.53 and score["verdict"] == "differs" and score["n"] == 30
    assert score["difference"] == pytest.approx(score["ours"] - 70.53)
    assert entry["settings"]["pooling"] == "cls_before_pooler" and entry["commit"] is None
    assert set(entry["sha256"]) == {"model.safetensors"}
    assert f"| {score['difference']:+.2f} " in capsys.readouterr().out
    command.main([f"unsup-simcse-bert-base-uncased={tiny_bert}", f"--output={tmp_path / 'published'}"])
    written = json.loads((tmp_path / "published.json").read_text())
    assert written[0] == entry and [e["name"] for e in written] == [name, "unsup-simcse-bert-base-uncased"]
    for words in (f"## {name}", "a local copy", "cls_before_pooler", "InfoCSE (arXiv 2210.06432), table 2"):
        assert words in page.read_text()


def test_promptbert_is_its_mask_in_the_template_behind_a_full_stop(tiny_bert, small_task, tmp_path):
    [entry] = command.main([f"unsup-promptbert={tiny_bert}", f"--output={tmp_path / 'published'}"])
    pairs = small_task.load("")[""]
    tokenizer = templated(load_tokenizer(str(tiny_bert)), 'This sentence of "{text}" means {mask}.')
    model = load_backbone(str(tiny_bert)).eval()

    def mask_states(texts):
        states = []
        for text in texts:
            ids = tokenizer(text if text[-1] in ".?\"'" else f"{text}.", return_tensors="pt")["input_ids"]
            with torch.no_grad():
                states.append(model(ids).last_hidden_state[ids == tokenizer.mask_token_id])
        return torch.cat(states)

    cosine = torch.cosine_similarity(mask_states(pairs.left), mask_states(pairs.right))
    assert entry["scores"][0]["ours"] == round(correlation(cosine.numpy(), np.array(pairs.gold)), 2)
    assert entry["settings"]["pooling"] == "mask"


def test_the_page_in_results_is_that_of_its_figures_and_has_what_is_published_now():
    entries = json.loads((ROOT / "results" / "published.json").read_text())
    assert (ROOT / "results" / "published.md").read_text() == command.page_of(entries)
    for entry in entries:
        record = published(checkpoints()[entry["name"]]["record"])
        for score in entry["scores"]:
            assert score["published"] == record.scores[Key(score["task"], "test", "test", score["metric"])].mean


@dataclass
class Hub:
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    endpoint: str = ""


def commit_of(revision):
    return COMMIT if revision == "main" else revision


class _Handler(BaseHTTPRequestHandler):
    """The files of model repositories, at the commit that is asked for; `main` is at `COMMIT`."""

    hub: Hub

    def do_HEAD(self):
        self._answer(with_body=False)

    def do_GET(self):
        self._answer(with_body=True)

    def log_message(self, *args):
        pass

    def _answer(self, with_body):
        path = self.path.partition("?")[0].strip("/")
        if path.startswith("api/models/"):
            owner, name, *rest = path.removeprefix("api/models/").split("/")
            files = self.hub.repos.get(f"{owner}/{name}", {}).items()
            answer = {"id": f"{owner}/{name}", "sha": commit_of(rest[1] if rest else "main")}
            answer["siblings"] = [{"rfilename": file, "size": len(body)} for file, body in files]
            if rest[:1] == ["tree"]:
                answer = [{"type": "file", "path": file, "size": len(body), "oid": "0" * 40} for file, body in files]
            return self._send(200, json.dumps(answer).encode())
        owner, name, _, revision, *rest = path.split("/")
        body, commit = self.hub.repos.get(f"{owner}/{name}", {}).get("/".join(rest)), commit_of(revision)
        if body is None:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        if with_body:
            self.hub.fetched.append(path.split("/resolve/")[0] + "/" + "/".join(rest))
        digest = hashlib.sha256(body).hexdigest()
        return self._send(200, body if with_body else b"", {"ETag": f'"{digest}"', "X-Repo-Commit": commit}, len(body))

    def _send(self, status, body, headers=None, length=None):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body) if length is None else length), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def hub(monkeypatch):
    hub = Hub()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(type("Handler", (_Handler,), {"hub": hub})) as hub.endpoint:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


def repository(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# One process for all: the library reads HF_ENDPOINT when it is imported.
SCRIPT = """
import json, logging, sys
from dataclasses import replace
import eval.published.__main__ as command
from eval.sts import own_pairs
logging.basicConfig(level=logging.INFO, format="%(message)s")
dev, output, *names = sys.argv[1:]
command.tasks_of = lambda groups, record: [replace(own_pairs(dev), name="STS12", split="test")]
for name in names:
    command.main([name, f"--output={output}"])
"""


def test_checkpoints_of_every_shape_are_fetched_and_scored(hub, tiny, tiny_bert, small_task, dev_file, tmp_path):
    """Old weights, whole and in parts, a template, modules, and a pooler with a pickle beside the safetensors."""
    torch.manual_seed(2)
    model = AutoModel.from_config(load_config(str(tiny_bert)))
    for folder in (tmp_path / "plain", tmp_path / "old"):
        load_tokenizer(str(tiny_bert)).save_pretrained(folder)
        load_config(str(tiny_bert)).save_pretrained(folder)
    model.save_pretrained(tmp_path / "plain")
    prefixed = {f"bert.{name}": value for name, value in model.state_dict().items()}
    torch.save(prefixed, tmp_path / "old" / "pytorch_model.bin")
    shutil.copytree(tmp_path / "old", tmp_path / "parts", ignore=shutil.ignore_patterns("*.bin"))
    shard(tmp_path / "parts", prefixed)
    encoder, tokenizer = load_encoder(str(tmp_path / "plain"), "avg")
    encoder.save(tmp_path / "modules", tokenizer)
    old, new = repository(tmp_path / "old"), repository(tmp_path / "plain")
    shapes = {
        "infocse-bert-base": old,
        "sup-simcse-bert-base-uncased": new | {"pytorch_model.bin": b"not needed", "tf_model.h5": b"nor this"},
        "unsup-promptbert": old,
        "diffcse-bert-base-uncased-sts": repository(tmp_path / "parts"),
        "all-MiniLM-L6-v2": repository(tmp_path / "modules"),
    }
    known = checkpoints()
    hub.repos = {known[name]["hub"]: files for name, files in shapes.items()}
    environment = os.environ | {"HF_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, "-c", SCRIPT, str(dev_file), str(tmp_path / "published"), *shapes]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    entries = {entry["name"]: entry for entry in json.loads((tmp_path / "published.json").read_text())}
    for name in shapes:
        copy = tmp_path / ("plain" if "pooling" in known[name] else "modules")
        [ours] = command.main([f"{name}={copy}", f"--output={tmp_path / 'local'}"])
        assert entries[name]["scores"] == ours["scores"], name
        assert entries[name]["commit"] == known[name].get("revision", COMMIT)
    assert (
        f"`ffgcc/InfoCSE-bert-base`, at commit {COMMIT} (main; no revision is known)"
        in (tmp_path / "published.md").read_text()
    )
    assert not [file for file in hub.fetched if file.endswith("tf_model.h5")]
    assert "princeton-nlp/sup-simcse-bert-base-uncased/pytorch_model.bin" not in hub.fetched
