"""The card: all that is known is in it, and nothing of what must not be."""

import re
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

from eval.compare.sides import published
from eval.scores import row
from export.__main__ import main
from export.facts import Facts
from tests.folders import run_record
from training.methods import load_method, method_names

from .conftest import SCORES

HOSTILE = "</script><b>|[x](y)"
SAID = ["Trained with SimCSE", "vector of 32 numbers", "base model: a local checkpoint", "80.92"]
SAID += [f"mine.txt, 1,234 rows; sha256 {'cd' * 32}", "**Licence:** not stated", "step 375 of 500"]
SAID += [f"torch 2.13.0, commit {'ef' * 20} with 2 changed files, device cpu", "One run, seed 17"]
SAID += ["eprint = {2104.08821}", "## Limits and risks"]


@pytest.fixture
def card_of(make_run, tmp_path):
    def card_of(run=None, scores=SCORES, output="a-model", **kinds):
        folder = make_run(run=run, scores=scores, **kinds)
        main([str(folder), "--output", str(tmp_path / output)])
        return (tmp_path / output / "README.md").read_text(encoding="utf-8")

    return card_of


def table_lines(card):
    """The cells of every line of a table."""
    lines = [line.split("|")[1:-1] for line in card.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line] for line in lines]


@pytest.mark.parametrize("name", method_names())
def test_what_a_method_cites_is_bibtex_and_its_records_exist(name):
    method = load_method(name)
    for entry in method.citations:
        assert re.match(r"@\w+\{\w+,", entry)
        assert entry.count("{") == entry.count("}")
    assert all(published(of).scores for of in method.published)


def test_the_card_holds_what_is_known_of_the_run(card_of):
    card = card_of(run_record())
    for words in SAID:
        assert words in card
    lines = table_lines(card)
    for score in SCORES:
        words = [score["task"], "test", "spearman", score["aggregation"]]
        assert ([*words, f"{score['n']:,}", f"{score['value']:.2f}"] in lines) == score["headline"]
    start = [line[0] for line in lines].index("setting") + 2
    settings = {line[0]: line[1] for line in lines[start:]}
    assert settings == {"pooling": "avg", "temperature": "0.1", "max_steps": "500", "seed": "17"}
    data = ModelCard(card).data  # the head, as the hub's library reads it
    shown = [(result.dataset_name, result.metric_value) for result in data.eval_results]
    assert shown == [("STS12", 62.376), ("STS-B", 70.448)]
    assert data.library_name == "sentence-transformers" and "simcse" in data.tags
    assert (data.base_model, data.license) == (None, None)


def test_a_faster_mode_is_named_with_the_figure(card_of):
    card = card_of(scores=[row("MR", "test", "accuracy", "mean of folds", 10662, 80.5, "fasttest")])
    [result] = ModelCard(card).data.eval_results
    assert result.metric_name == "accuracy x 100, mean of folds, fasttest"
    assert "mean of folds, fasttest" in [line[3] for line in table_lines(card) if len(line) == 6]


def test_the_dev_score_stands_beside_that_of_the_base_model(card_of):
    title = "Spearman's correlation on STS-B dev"
    verdict = {"metric": "stsb_spearman", "title": title, "start": 70.0, "result": 80.92}
    card = card_of(run_record() | {"verdict": verdict})
    lines = table_lines(card)
    assert lines[0] == ["score", "base model", "this model"]
    assert lines[2] == [f"{title}, which selected the model", "70.00", "80.92"]
    assert lines[3] == ["mean of 2 tasks", "not scored", "66.42"]


def test_a_base_model_of_the_hub_is_named_and_a_folder_is_not(card_of):
    run = run_record()
    run["trajectory"]["start"] = run["settings"]["model_name_or_path"] = "owner/base"
    card = card_of(run)
    assert ModelCard(card).data.base_model == "owner/base"
    assert "base model: owner/base" in card
    for folder in ("/home/someone/base", "../base", "~/base", "runs/deep/base"):
        facts = Facts({"settings": {"model_name_or_path": folder}, "trajectory": {"start": folder}})
        assert facts.base_model is None
    # a folder's weights in several files, or in a pickle: it has a name like that of a hub, and no
    # single hash
    run["trajectory"]["contents"] = {"model_name_or_path": {"config.json": "ab" * 32}}
    assert Facts(run).base_model is None


def test_hostile_names_and_paths_leave_a_clean_card(card_of, tmp_path, sentences):
    run = run_record()
    secret, path = "hf_" + "s" * 30, "/home/someone/secret"
    of_settings = {"method": HOSTILE, "model_name_or_path": path, "seed": HOSTILE}
    run["settings"] |= of_settings | {"hub_token": secret}
    run["trajectory"] |= of_settings | {"start": path, "config_name": path, HOSTILE: HOSTILE}
    run["trajectory"]["rank_text"] = [path, secret, "a\n```\n# Title"]
    run["trajectory"]["text"] |= {"files": [f"{path}/{HOSTILE}", path], "sha256": HOSTILE}
    run |= {"commit": HOSTILE, "versions": {HOSTILE: HOSTILE}, "steps": HOSTILE}
    run |= {"findings": [HOSTILE, "a\n# Title"], "verdict": {"metric": HOSTILE}}
    run |= {"best": {"step": HOSTILE, "value": HOSTILE}}
    run["hardware"] = {"device": f"x\n---\n{HOSTILE}"}
    run["seen_test_texts"] = {HOSTILE: {"seen": HOSTILE, "sentences": HOSTILE}}
    scores = [{**row, "aggregation": HOSTILE, "run": path} for row in SCORES]
    scores[0]["task"] = HOSTILE
    card = card_of(run, scores, name="r|`x`", output="a<b>[x](y) model")
    for forbidden in ("<", "[x]", "someone", "/home", secret, str(tmp_path), "# Title\n"):
        assert forbidden not in card, forbidden
    assert card.count("\n---\n") == 1  # the end of the head
    assert card.count("```") % 2 == 0
    head = yaml.safe_load(card.split("---\n")[1])
    assert head["model-index"][0]["name"] == "a_b__x_(y) model"
    cells = {line.count("|") for line in card.splitlines() if line.startswith("| ")}
    assert cells == {3, 4, 7}, "settings, scores beside the base model's, scores"
    assert not [sentence for sentence in sentences if sentence in card]


def test_no_file_of_an_export_holds_a_path_of_this_machine(card_of, tmp_path, tiny_bert):
    card_of(run_record())
    for file in (tmp_path / "a-model").rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        for path in (tmp_path, tiny_bert, Path.home(), Path(__file__).parents[2]):
            assert str(path).encode() + b"/" not in content, file
