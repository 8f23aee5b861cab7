"""Published checkpoints: the list, the comparison, and fetching and scoring them."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from huggingface_hub.utils import filter_repo_objects
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
    assert line("BIOSSES", 50.0) == (50.0, None, None, None)
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


def test_checkpoints_of_every_shape_are_fetched_and_scored(tiny_bert, small_task, tmp_path, monkeypatch):
    """Old weights, whole and in parts, modules, and a pooler with a pickle beside the safetensors."""
    torch.manual_seed(2)
    model = AutoModel.from_config(load_config(str(tiny_bert)))
    plain, old, parts, both, modules = (tmp_path / name for name in ("plain", "old", "parts", "both", "modules"))
    for folder in (plain, old):
        load_tokenizer(str(tiny_bert)).save_pretrained(folder)
        load_config(str(tiny_bert)).save_pretrained(folder)
    shutil.copytree(old, parts)
    model.save_pretrained(plain)
    prefixed = {f"bert.{name}": value for name, value in model.state_dict().items()}
    torch.save(prefixed, old / "pytorch_model.bin")
    shard(parts, prefixed)
    shutil.copytree(plain, both)
    for unneeded in ("pytorch_model.bin", "tf_model.h5"):
        (both / unneeded).write_bytes(b"not needed")
    encoder, tokenizer = load_encoder(str(plain), "avg")
    encoder.save(modules, tokenizer)
    shapes = {
        "infocse-bert-base": old,
        "sup-simcse-bert-base-uncased": both,
        "diffcse-bert-base-uncased-sts": parts,
        "all-MiniLM-L6-v2": modules,
    }
    known = checkpoints()
    folders = {known[name]["hub"]: folder for name, folder in shapes.items()}

    def snapshot_download(hub, revision=None, allow_patterns=None):
        target = tmp_path / "cache" / hub / (revision or COMMIT)
        files = [str(path.relative_to(folders[hub])) for path in folders[hub].rglob("*") if path.is_file()]
        for file in filter_repo_objects(files, allow_patterns=allow_patterns):
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folders[hub] / file, target / file)
        return str(target)

    monkeypatch.setattr(command, "snapshot_download", snapshot_download)
    for name in shapes:
        [fetched] = command.main([name, f"--output={tmp_path / 'published'}"])
        copy = plain if "pooling" in known[name] else modules
        [local] = command.main([f"{name}={copy}", f"--output={tmp_path / 'local'}"])
        assert fetched["scores"] == local["scores"], name
        assert fetched["commit"] == known[name].get("revision", COMMIT)
    assert f"at commit {COMMIT} (main; no revision is known)" in (tmp_path / "published.md").read_text()
    cached = {path.name for path in (tmp_path / "cache" / known["sup-simcse-bert-base-uncased"]["hub"]).rglob("*")}
    assert "model.safetensors" in cached and not cached & {"pytorch_model.bin", "tf_model.h5"}
    with pytest.raises(BadInput, match="cannot be fetched from the hub"):
        command.main(["unsup-simcse-roberta-large"])
