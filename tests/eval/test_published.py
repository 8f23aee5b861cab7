"""Published checkpoints: the list, the comparison, and fetching and scoring them."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from huggingface_hub.utils import filter_repo_objects

import eval.published.__main__ as command
from common.errors import BadInput
from common.files import files_in
from data.template import templated
from eval.compare.sides import published
from eval.metrics.correlation import spearman
from eval.published.__main__ import checkpoints, compared
from eval.scores import Key, row
from eval.sts import STS_TEST, own_pairs
from models.loading import load_backbone, load_tokenizer
from models.pooling import POOLINGS
from tests.eval.toys import sts_files, write_sts
from tests.sources import ROOT, check_entry

COMMIT = "c" * 40


def test_every_entry_is_well_formed_and_its_record_has_a_score():
    for name, entry in checkpoints().items():
        needed = {"name": str, "hub": str, "source": str}
        more = dict.fromkeys(["pooling", "record", "revision", "template", "note"], str)
        more["stop"] = bool
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
        [line] = compared(
            [{**row(task, "test", metric, "all", 9, value), "headline": headline}], record
        )
        return line["ours"], line.get("published"), line.get("difference"), line.get("verdict")

    assert line("STS12", 68.4249) == (68.42, 68.40, 0.02, "equal")
    assert line("STS12", 68.3751) == (68.38, 68.40, -0.02, "equal")
    assert line("Avg.", 76.28) == (76.28, 76.25, 0.03, "differs")
    assert line("MR", 81.0, "accuracy") == (81.0, 81.18, -0.18, "differs")
    assert line("BIOSSES", 50.0) == (50.0, None, None, None)
    pearson = {**row("STS12", "test", "pearson", "all", 9, 1.0), "headline": False}
    assert compared([pearson], record) == []
    rows = [row(task, "test", "spearman", "all", 9, 80.0) for task in ("STS12", "Avg.")]
    lines = compared([{**row, "headline": True} for row in rows], published("all-minilm-l6-v2"))
    assert [line["task"] for line in lines] == ["STS12"], "another SICK-R"


def test_sick_r_counts_the_pairs_of_the_published_score(tmp_path):
    sizes = {task.name: task.pairs for task in STS_TEST}
    pairs = lambda _, count: [("a dog", "a cat", 1 + i % 5) for i in range(count)]  # noqa: E731
    write_sts(tmp_path, sts_files(pairs, sizes))
    counts = []
    for record in ("simcse-bert-base", "all-minilm-l6-v2"):
        [task] = [
            task for task in command.tasks_of(["sts"], published(record)) if task.name == "SICK-R"
        ]
        [pairs] = task.load(tmp_path).values()
        counts.append(len(pairs.gold))
    assert counts == [4927, 9927]


@pytest.fixture
def small_task(dev_file, tmp_path, monkeypatch):
    """Own pairs in place of the seven sets, none of equal sentences, whose cosines tie."""
    pairs = [
        line for line in dev_file.read_text().splitlines(keepends=True) if "\t5.000" not in line
    ]
    (tmp_path / "pairs.tsv").write_text("".join(pairs))
    task = replace(own_pairs(str(tmp_path / "pairs.tsv")), name="STS12", split="test")
    monkeypatch.setattr(command, "tasks_of", lambda groups, record: [task])
    return task


def test_a_local_copy_is_scored_and_the_page_keeps_what_was_there(
    tiny_bert, small_task, tmp_path, capsys
):
    name, page = "infocse-bert-base", tmp_path / "published.md"
    [entry] = command.main([f"{name}={tiny_bert}", f"--output={tmp_path / 'published'}"])
    [score] = entry["scores"]
    assert score["published"] == 70.53 and score["verdict"] == "differs" and score["n"] == 25
    assert score["difference"] == pytest.approx(score["ours"] - 70.53)
    assert entry["settings"]["pooling"] == "cls_before_pooler" and entry["commit"] is None
    assert set(entry["sha256"]) == {"model.safetensors"}
    assert f"| {score['difference']:+.2f} " in capsys.readouterr().out
    other = "unsup-simcse-bert-base-uncased"
    command.main([f"{other}={tiny_bert}", f"--output={tmp_path / 'published'}"])
    written = json.loads((tmp_path / "published.json").read_text())
    assert written[0] == entry and [e["name"] for e in written] == [name, other]
    source = "InfoCSE (arXiv 2210.06432), table 2"
    for words in (f"## {name}", "a local copy", "cls_before_pooler", source):
        assert words in page.read_text()


def test_promptbert_is_its_mask_in_the_template_behind_a_full_stop(tiny_bert, small_task, tmp_path):
    [entry] = command.main([f"unsup-promptbert={tiny_bert}", f"--output={tmp_path / 'published'}"])
    pairs = small_task.load("")[""]
    tokenizer = templated(load_tokenizer(str(tiny_bert)), 'This sentence of "{text}" means {mask}.')
    model = load_backbone(str(tiny_bert)).eval()

    def mask_states(texts):
        states = []
        for text in texts:
            ids = tokenizer(text if text[-1] in ".?\"'" else f"{text}.", return_tensors="pt")[
                "input_ids"
            ]
            with torch.no_grad():
                states.append(model(ids).last_hidden_state[ids == tokenizer.mask_token_id])
        return torch.cat(states)

    cosine = torch.cosine_similarity(mask_states(pairs.left), mask_states(pairs.right))
    assert entry["scores"][0]["ours"] == round(spearman(cosine.numpy(), np.array(pairs.gold)), 2)
    assert entry["settings"]["pooling"] == "mask"


def test_the_page_in_results_is_that_of_its_figures_and_has_what_is_published_now():
    entries = json.loads((ROOT / "results" / "published.json").read_text())
    assert (ROOT / "results" / "published.md").read_text() == command.page_of(entries)
    for entry in entries:
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
def test_one_form_of_the_weights_is_fetched_with_the_small_files(
    tmp_path, monkeypatch, weights, unneeded
):
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
    with pytest.raises(BadInput, match="'b/model' cannot be fetched from the hub"):
        command.fetch("b/model")
