"""`python -m export`: whole folders or none, and one clear line for what cannot be done."""

import pytest
from sentence_transformers import SentenceTransformer

from common.errors import BadInput, CheckpointRefused
from export.__main__ import card, main
from models.encoder import load_encoder
from search.recipe import Recipe
from tests.faults.forked import meanwhile
from tests.folders import run_record, same_weights
from tests.refusals import refused

from .conftest import SCORES

WHOLE = """README.md config.json model.safetensors tokenizer.json tokenizer_config.json modules.json
    1_Pooling sentence_bert_config.json config_sentence_transformers.json infocse.json"""


def test_an_empty_folder_is_filled_and_a_full_one_refused(make_run, tmp_path):
    run, target = make_run(run=run_record()), tmp_path / "deep" / "out"
    target.mkdir(parents=True)
    main([str(run), "--output", str(target)])
    names = {path.name for path in target.iterdir()}
    assert names == {*WHOLE.split()}
    modes = {path.stat().st_mode for path in target.rglob("*.safetensors")}
    assert modes == {(target / "config.json").stat().st_mode}, "others can read the weights too"
    before = (target / "README.md").read_bytes()
    for there in (target, target / "config.json"):
        assert "exists already" in refused(main, [str(run), "--output", str(there)])
    assert (target / "README.md").read_bytes() == before
    assert [path.name for path in target.parent.iterdir()] == ["out"]


def test_of_two_exports_at_once_the_second_is_refused(make_run, tiny_bert, tmp_path, monkeypatch):
    run, output, codes = make_run(), f"--output={tmp_path / 'out'}", []

    def slow(model, facts):
        monkeypatch.setattr("export.__main__.card", card)
        codes.append(meanwhile(main, [str(tiny_bert), "--pooling=avg", output]))
        return card(model, facts)

    monkeypatch.setattr("export.__main__.card", slow)
    main([str(run), output])
    assert codes == [5] and same_weights(tmp_path / "out", run)
    assert {path.name for path in tmp_path.iterdir()} == {run.name, "out"}


def test_what_can_be_read_can_be_exported(tiny_bert, make_run, tmp_path):
    """A plain encoder with a pooling by name, an export, a sentence-transformers folder."""
    main([str(tiny_bert), "--pooling", "avg", "--output", str(tmp_path / "plain")])
    main([str(tmp_path / "plain"), "--output", str(tmp_path / "again")])
    assert load_encoder(str(tmp_path / "again"))[0].pooling == "avg"
    SentenceTransformer(str(tmp_path / "plain"), device="cpu").save(str(tmp_path / "theirs"))
    main([str(tmp_path / "theirs"), "--output", str(tmp_path / "from-theirs")])
    assert load_encoder(str(tmp_path / "from-theirs"))[0].pooling == "avg"
    assert "--pooling" in refused(main, [str(tiny_bert), "--output", str(tmp_path / "no")])
    other = ["--pooling", "cls_before_pooler", "--output", str(tmp_path / "no")]
    assert "states its pooling, avg" in refused(main, [str(tmp_path / "plain"), *other])
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"status": "running"}, BadInput, "not finished"),
        ({"trajectory": 3}, CheckpointRefused, "not a run record"),
    ],
)
def test_a_record_that_cannot_be_used_is_refused(make_run, tmp_path, change, error, words):
    run = make_run(run=run_record() | change)
    with pytest.raises(error, match=words):
        main([str(run), "--output", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_a_run_without_scores_is_exported_with_how_to_search(make_run, tmp_path):
    run, recipe = make_run(scores=[]), Recipe(0.25, "german")  # --test_tasks none
    recipe.write(run)
    main([str(run), "--output", str(tmp_path / "out")])
    assert "none are recorded" in (tmp_path / "out" / "README.md").read_text()
    assert Recipe.of(tmp_path / "out") == recipe


def test_scores_of_other_settings_are_not_the_model_s(make_run, tmp_path):
    changes = {
        "pooling avg_top2": {"pooling": "avg_top2"},
        "max_length 7": {"max_length": 7},
        "the query prompt 'q: '": {"prompts": {"query": "q: "}},
        "the default prompt 'q: '": {"prompts": {"default": "q: "}},
    }
    for words, change in changes.items():
        run = make_run(scores=[SCORES[0] | change])
        said = refused(main, [str(run), "--output", str(tmp_path / "out")])
        assert f"scored with {words}, not the model's" in said and "score again" in said


def test_scores_of_bm25_are_not_the_model_s(make_run, tmp_path):
    found = {"task": "scifact", "metric": "ndcg@10", "aggregation": "mean of queries"}
    rows = [SCORES[0] | found | {"search": search} for search in ("dense", "hybrid", "bm25")]
    for number, row in enumerate(rows):
        row["value"] = 61.0 + number
    main([str(make_run(scores=rows)), "--output", str(tmp_path / "out")])
    card = (tmp_path / "out" / "README.md").read_text()
    header, text = card.split("\n---\n", 1)
    assert "value: 61.0" in header and "62.0" not in header and "63.0" not in header
    beside, scores = text.split("## Scores")
    assert "61.00" in beside and "62.00" not in beside and "63.00" not in beside
    assert "mean of queries, search hybrid" in scores and "mean of queries, search bm25" in scores


def test_a_resumed_run_names_what_every_start_ran_on(make_run, tmp_path):
    earlier = {"commit": "a" * 40, "versions": {"torch": "1.0"}, "hardware": {"device": "NVIDIA X"}}
    run = make_run(run=run_record() | {"earlier_starts": [earlier]})
    main([str(run), "--output", str(tmp_path / "out")])
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"torch 1.0, commit {'a' * 40}, device NVIDIA X; resumed with python" in card
    assert "with 2 changed files, device cpu" in card
