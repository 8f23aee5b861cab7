"""Published checkpoints: the list, the comparison, and fetching and scoring them."""

import json
from dataclasses import replace

import pytest
from huggingface_hub.utils import filter_repo_objects

import eval.published.__main__ as command
from common.files import files_in
from eval.compare.sides import published
from eval.published.__main__ import checkpoints, compared
from eval.scores import Key, row
from eval.sts import STS_TEST, own_pairs
from models.pooling import POOLINGS
from papers.summary import rendered
from tests.eval.toys import sts_files, write_sts
from tests.refusals import refused
from tests.sources import ROOT, check_entry

COMMIT = "c" * 40


def test_every_entry_is_well_formed_and_its_record_has_a_score():
    for name, entry in checkpoints().items():
        needed = {"name": str, "hub": str, "source": str}
        check_entry(entry, needed, dict.fromkeys(["pooling", "record", "revision", "note"], str))
        assert entry["name"] == name and entry["hub"].count("/") == 1
        assert entry.get("pooling", "avg") in {*POOLINGS, "pooler"}
        assert len(entry.get("revision", COMMIT)) == 40
        if "record" in entry:
            keys = {(key.split, key.metric) for key in published(entry["record"]).scores}
            assert keys & {("test", "spearman"), ("test", "accuracy")}, name


def test_a_difference_of_two_hundredths_is_none():
    record = published("simcse-bert-base")

    def line(task, value, metric="spearman"):
        scored = row(task, "test", metric, "all", 9, value)
        [line] = compared([{**scored, "headline": True}], record)
        return line["ours"], line.get("published"), line.get("difference"), line.get("verdict")

    assert line("STS12", 68.4249) == (68.42, 68.40, 0.02, "equal")
    assert line("STS12", 68.3751) == (68.38, 68.40, -0.02, "equal")
    assert line("Avg.", 76.28) == (76.28, 76.25, 0.03, "differs")
    assert line("MR", 81.0, "accuracy") == (81.0, 81.18, -0.18, "differs")
    assert line("BIOSSES", 50.0) == (50.0, None, None, None)
    pearson = row("STS12", "test", "pearson", "all", 9, 1.0) | {"headline": False}
    assert compared([pearson], record) == []
    average = row("Avg.", "test", "spearman", "all", 9, 80.0) | {"headline": True}
    assert compared([average], published("all-minilm-l6-v2")) == [], "another SICK-R"


def test_sick_r_counts_the_pairs_of_the_published_score(tmp_path):
    sizes = {task.name: task.pairs for task in STS_TEST}

    def pairs(_, count):
        return [("a dog", "a cat", 1 + i % 5) for i in range(count)]

    write_sts(tmp_path, sts_files(pairs, sizes))
    for record, count in (("simcse-bert-base", 4927), ("all-minilm-l6-v2", 9927)):
        *_, task = command.tasks_of(["sts"], published(record))
        assert task.name == "SICK-R" and len(task.load(tmp_path)[""].gold) == count


def test_a_copy_is_scored_and_others_are_kept(tiny_bert, dev_file, tmp_path, monkeypatch, capsys):
    lines = dev_file.read_text().splitlines(keepends=True)
    pairs = tmp_path / "pairs.tsv"  # without those of equal sentences, whose cosines tie
    pairs.write_text("".join(line for line in lines if "\t5.000" not in line))
    task = replace(own_pairs(str(pairs)), name="STS12", split="test")
    monkeypatch.setattr(command, "tasks_of", lambda groups, record: [task])
    name, output = "infocse-bert-base", tmp_path / "published.json"
    [entry] = command.main([f"{name}={tiny_bert}", f"--output={output}"])
    [score] = entry["scores"]
    assert score["published"] == 70.53 and score["verdict"] == "differs" and score["n"] == 25
    assert score["difference"] == pytest.approx(score["ours"] - 70.53)
    assert entry["settings"]["pooling"] == "cls_before_pooler" and entry["commit"] is None
    assert set(entry["sha256"]) == {"model.safetensors"}
    assert f"| {score['difference']:+.2f} " in capsys.readouterr().out
    other = "unsup-simcse-bert-base-uncased"
    meanwhile = {**entry, "name": "of another command"}

    def scoring(*_):
        output.write_text(json.dumps([entry, meanwhile]))
        return {**entry, "name": other}

    with monkeypatch.context() as patch:
        patch.setattr(command, "score", scoring)
        command.main([f"{other}={tiny_bert}", f"--output={output}"])
    written = json.loads(output.read_text())
    assert written[:2] == [entry, meanwhile] and written[2]["name"] == other
    monkeypatch.setattr(command, "tasks_of", lambda groups, record: [replace(task, name="STS13")])
    [later] = command.main([f"{name}={tiny_bert}", f"--output={output}"])
    assert [score["task"] for score in later["scores"]] == ["STS12", "STS13"]
    assert later["scores"][0] == score
    (tmp_path / "mteb.json").write_text("[]", encoding="utf-8")
    page = rendered("published.md", tmp_path)
    source = "InfoCSE (arXiv 2210.06432), table 2"
    for words in (f"## {name}", "a local copy", "cls_before_pooler", source):
        assert words in page


def test_the_results_have_what_is_published_now():
    for entry in json.loads((ROOT / "results" / "published.json").read_text()):
        record = published(checkpoints()[entry["name"]]["record"])
        for score in entry["scores"]:
            key = Key(score["task"], "test", "test", score["metric"])
            assert score["published"] == record.scores[key].mean


@pytest.mark.parametrize(
    ("weights", "unneeded"),
    [
        (["model.safetensors"], ["pytorch_model.bin", "tf_model.h5"]),
        (["pytorch_model.bin"], ["flax_model.msgpack"]),
        ([f"pytorch_model-0000{n}-of-00002.bin" for n in (1, 2)], ["rust_model.ot"]),
    ],
)
def test_one_form_of_weights_and_small_files_are_fetched(tmp_path, monkeypatch, weights, unneeded):
    small = ["config.json", "vocab.txt", "sentencepiece.bpe.model", "1_Pooling/config.json"]

    def snapshot_download(hub, revision, allow_patterns):
        target = tmp_path / {"a/model": revision or COMMIT}[hub]
        files = [*small, *weights, *unneeded]
        for file in filter_repo_objects(files, allow_patterns=allow_patterns):
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            (target / file).touch()
        return str(target)

    monkeypatch.setattr(command, "snapshot_download", snapshot_download)
    for revision in (None, "d" * 40):
        folder = command.fetch("a/model", revision)
        assert folder.name == (revision or COMMIT)
        assert {*files_in(folder)} == {*small, *weights}
    assert "'b/model' cannot be fetched from the hub" in refused(command.fetch, "b/model")
