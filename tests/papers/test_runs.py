"""One real run on the tiny model, and the scores of Figure 4 against a forward of their own."""

import json
import shutil

import numpy as np
import pytest

import run_unsup
from baselines import __main__ as baselines
from common.errors import BadInput, FolderInUse
from common.files import RUN_FILE, sha256
from common.folders import locked
from data.lines import content_hash
from eval.analyse.tokens import AverageWithout, FrequentTokens, most_frequent
from eval.encode import Encode
from eval.metrics.correlation import spearman
from eval.metrics.cosine import pair_cosines
from eval.scores import Key
from eval.sts import Pairs
from models.pooling import POOLINGS
from papers import runs
from papers.__main__ import main
from papers.plans import GLOVE, model_difference, plan_of
from papers.results import collect, fill
from papers.runs import Choice, RunPlan, finished
from papers.specification import Column, Table, TableRow
from tests.encoders import encode_of
from tests.eval.toys import write_stsb
from tests.faults.forked import meanwhile
from tests.refusals import refused

SIMCSE = ["infocse-9", "--rows", "SimCSE, cls", "--backbone=mini", "--seeds", "4", "--float32"]


@pytest.fixture
def data_dir(tmp_path, sentences):
    """STS-B dev of the published size."""
    rows = [(i % 6, sentences[i % 300], sentences[i * 7 % 300]) for i in range(1500)]
    return write_stsb(tmp_path / "data", rows, "dev")


def test_a_run_is_trained_scored_and_kept(tmp_path, tiny_bert, text_file, data_dir, monkeypatch):
    monkeypatch.chdir(tmp_path)
    started = []

    def launch(script, *argv):
        started.append(argv)
        run_unsup.main(list(argv))

    monkeypatch.setattr(runs, "launch", launch)
    text = tmp_path / "text.txt"
    shutil.copy(text_file, text)
    places = [f"--model={tiny_bert}", f"--train_file={text}", f"--data_dir={data_dir}"]
    argv = [*SIMCSE, *places, "--steps=2"]
    [row] = main(argv)
    assert row["ours_runs"] == 1 and -100 <= row["ours"] <= 100
    assert row["verdict"] == "not comparable: other backbone, other text, other budget"
    facts = row["provenance"][4]
    assert facts["text"] == content_hash([text_file])
    assert facts["start"] == sha256(tiny_bert / "model.safetensors")
    assert (facts["precision"], facts["stage_one_steps"]) == ("float32", None)
    assert facts["steps"] == 2 and set(facts["versions"]) >= {"torch", "transformers"}
    folder = tmp_path / facts["run"]
    assert finished(folder)["best"]["value"] == pytest.approx(row["ours"], abs=0.01)
    assert not list(folder.glob("checkpoint-*")) and not list(folder.glob("*.part"))
    assert main(argv) == [row] and len(started) == 1
    text.write_text(text.read_text() + "One more line.\n")
    runs._text.cache_clear()
    assert "train_file" in (said := refused(main, argv)) and "has changed since this run" in said


def test_baselines_are_fitted_scored_kept(tmp_path, tiny_bert, text_file, data_dir, monkeypatch):
    """Once per seed where something is drawn, and once where nothing is."""
    monkeypatch.chdir(tmp_path)
    started = []
    fitted = baselines.fitted
    monkeypatch.setattr(baselines, "fitted", lambda args: started.append(args) or fitted(args))
    flags = {"pooling": "avg_first_last", "steps": "1"}
    rows = (
        TableRow("flow", "bert-base", "simcse", flags, baseline="flow"),
        TableRow("words", "bert-base", "simcse", baseline="word_vectors"),
        TableRow("whitening", "bert-base", "simcse", {"pooling": "avg"}, baseline="whitening"),
    )
    columns = (Column("dev", Key("STS-B", "dev", "test", "spearman")),)
    table = Table("t-1", "A title", "A paper", "table 1", columns, rows)
    flags = {"backbone": "mini", "model": str(tiny_bert), "data_dir": str(data_dir), "bf16": True}
    choice = Choice(seeds=(0, 1), train_file=str(text_file), runs=str(tmp_path / "runs"), **flags)
    assert "no file" in plan_of(table, rows[1], choice)
    glove = data_dir / GLOVE
    glove.parent.mkdir()
    glove.write_text("a 1 2\n")
    for _ in range(2):
        fill(table, choice, tmp_path / "t-1.json", collect_only=False)
        assert [args.command for args in started] == ["flow", "word_vectors", "flow"]
    flow, words, whitening = collect(table, choice)
    assert (flow["ours_runs"], words["ours_runs"], whitening["ours_runs"]) == (2, 1, 1)
    assert flow["by_seed"][0] != flow["by_seed"][1]
    assert flow["provenance"][1]["text"] == content_hash([text_file])
    assert flow["provenance"][0]["start"] == sha256(tiny_bert / "model.safetensors")
    precisions = [row["provenance"][0]["precision"] for row in (flow, words, whitening)]
    assert precisions == ["float32", "float32", "bf16"]


def test_a_run_whose_script_outlives_its_command_is_left_to_it(tmp_path):
    plan, choice = RunPlan("m", {}, None, "m", "avg"), Choice(runs=str(tmp_path))
    with locked(plan.folder(choice, 0) / RUN_FILE):
        assert meanwhile(plan.fill, choice, 0, {}, False) == FolderInUse.exit_code
    plan.fill(choice, 0, {}, False)
    assert finished(plan.folder(choice, 0))


def test_missing_test_data_is_known_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "launch", lambda *_: pytest.fail("trained"))
    with pytest.raises(BadInput, match=r"sts-dev\.csv"):
        main(["infocse-4", f"--data_dir={tmp_path}", f"--runs={tmp_path}", f"--output={tmp_path}"])


def test_figure_4_is_the_mean_of_sets_without_frequent_tokens(tiny_bert, sentences, monkeypatch):
    def pairs(start):
        left, right = sentences[start : start + 20], sentences[start + 20 : start + 40]
        return Pairs(left, right, [float(i % 6) for i in range(20)])

    sets = {"STS12": pairs(0), "STS-B": pairs(40)}
    monkeypatch.setattr(FrequentTokens, "load", lambda self, data_dir: sets)
    encode = encode_of(tiny_bert, "cls_before_pooler")
    rows = FrequentTokens((0, 3), POOLINGS["avg_top2"].pool).score(encode, "nowhere").rows
    ids = encode.tokenizer(sets["STS-B"].left + sets["STS-B"].right)["input_ids"]
    common, pool = most_frequent(ids, 3), POOLINGS["avg_top2"].pool
    for row, count in zip(rows, (0, 3), strict=True):
        scores = []
        for part in sets.values():
            module = AverageWithout(encode.module.backbone, 64, pool, common, (count,))
            without = Encode(module, encode.tokenizer)
            left, right = without(part.left), without(part.right)
            scores.append(round(spearman(pair_cosines(left, right), np.array(part.gold)), 2))
        assert row["value"] == pytest.approx(sum(scores) / 2, abs=0.011)
        assert row["metric"] == f"spearman without {count} tokens" and row["n"] == 40
    assert rows[0]["value"] != rows[1]["value"]


BASE = {"model_type": "bert", "num_hidden_layers": 12, "hidden_size": 768, "vocab_size": 30522}


@pytest.fixture
def initial(tmp_path):
    """A local model of some size, as far as its configuration says."""

    def make(**sizes):
        (tmp_path / "config.json").write_text(json.dumps(BASE | sizes))
        return str(tmp_path)

    return make


def differs(row, **choice):
    plan = plan_of(Table("t-1", "A title", "A paper", "table 1", (), (row,)), row, Choice(**choice))
    assert isinstance(plan, RunPlan)
    return plan.differences


TRAINED = TableRow("SimCSE", "bert-base", config="simcse")
UNTRAINED = TableRow("[CLS]", "bert-base", evaluate="cls_before_pooler")
CHAINED = TableRow("sup-unsup", "bert-base", config="consert-sup-unsup", after="consert-sup")


@pytest.mark.parametrize("row", [TRAINED, UNTRAINED, CHAINED], ids=lambda row: row.label)
def test_the_initial_model_is_compared_by_its_size_if_it_is_here_or_by_its_name(row, initial):
    assert differs(row) == differs(row, model="bert-base-uncased") == ()
    assert differs(row, model="somebody/bert") == ("checkpoint not compared",)
    assert differs(row, model=initial()) == ()
    assert differs(row, model=initial(hidden_size=384)) == ("other checkpoint",)
    assert differs(row, model=initial(), backbone="mini")[0] == "other backbone"


def test_stage_one_text_and_budget_are_compared(initial):
    infocse = TableRow("InfoCSE", "bert-base", config="infocse")
    assert differs(infocse) == ()
    assert differs(infocse, stage_one="runs/mine") == ("checkpoint not compared",)
    assert differs(infocse, stage_one=initial(num_hidden_layers=6)) == ("other checkpoint",)
    assert differs(TRAINED, train_file="mine.txt", steps=9) == ("other text", "other budget")
    roberta = initial(model_type="roberta", vocab_size=50265)
    assert model_difference(roberta, None, "roberta-base", "roberta-base") is None


def test_the_names_of_folders_are_those_of_earlier_versions(tmp_path):
    """Figures of finished runs are found by these names."""
    config = tmp_path / "simcse-mini.yaml"
    config.write_text("method: simcse\ntrain_file: [b.txt, a.txt]\nseed: 1\nlearning_rate: 3e-5\n")
    trained = RunPlan("simcse-mini", {"max_steps": "9", "config": [str(config)]})
    assert str(trained.folder(Choice(), 2)) == "runs/tables/simcse-mini_53a07223f8_seed-2"
    untrained = RunPlan("untrained-mini-avg", {}, None, "m", "avg")
    assert str(untrained.folder(Choice(runs="r"), 0)) == "r/untrained-mini-avg_51f452a85d"
