"""Which runs are judged beside a paper's figure, and which are said to be something else."""

import json

import pytest

from papers.plans import Choice, RunPlan, plan_of, start_difference
from papers.specification import Table, TableRow

BASE = {"model_type": "bert", "num_hidden_layers": 12, "hidden_size": 768, "vocab_size": 30522}


@pytest.fixture
def start(tmp_path):
    def make(**sizes):
        (tmp_path / "config.json").write_text(json.dumps(BASE | sizes))
        return str(tmp_path)

    return make


def differs(row, **choice):
    plan = plan_of(Table("t-1", "A title", "A paper", "table 1", (), (row,)), row, Choice(**choice))
    assert isinstance(plan, RunPlan)
    return plan.differences


SIMCSE = TableRow("SimCSE", "bert-base", config="simcse")
UNTRAINED = TableRow("[CLS]", "bert-base", evaluate="cls_before_pooler")
CHAINED = TableRow("sup-unsup", "bert-base", config="consert-sup-unsup", after="consert-sup")


@pytest.mark.parametrize("row", [SIMCSE, UNTRAINED, CHAINED], ids=lambda row: row.label)
def test_the_start_is_compared_by_its_size_where_it_is_here_and_else_by_its_name(row, start):
    assert differs(row) == differs(row, model="bert-base-uncased") == ()
    assert differs(row, model="somebody/bert") == ("start not compared",)
    assert differs(row, model=start()) == ()
    assert differs(row, model=start(hidden_size=384)) == ("other start",)
    assert differs(row, model=start(model_type="roberta", vocab_size=50265)) == ("other start",)
    assert differs(row, model=start(), backbone="mini")[0] == "other backbone"


def test_a_stage_one_of_another_size_is_another_start(start):
    row = TableRow("InfoCSE", "bert-base", config="infocse")
    assert differs(row) == () and differs(row, stage_one="runs/mine") == ("start not compared",)
    assert differs(row, stage_one=start(num_hidden_layers=6)) == ("other start",)
    assert differs(row, stage_one=start()) == ()


def test_text_and_budget_are_compared_and_a_paper_without_configuration_says_so(start):
    assert differs(SIMCSE, train_file="mine.txt", steps=9) == ("other text", "other budget")
    large = TableRow("SBERT-large", "bert-large", config="consert-sup")
    assert differs(large, backbone="mini", model="m")[:2] == ("other backbone", "text not compared")


def test_a_roberta_is_one(start):
    roberta = start(model_type="roberta", vocab_size=50265)
    assert start_difference(roberta, None, "roberta-base", "roberta-base") is None
    assert start_difference(roberta, None, "bert-base", "bert-base") == "other start"


def test_the_names_of_folders_are_those_of_earlier_versions(tmp_path):
    """Figures of finished runs are found by these names, here and in committed files."""
    config = tmp_path / "simcse-mini.yaml"
    config.write_text("method: simcse\ntrain_file: [b.txt, a.txt]\nseed: 1\nlearning_rate: 3e-5\n")
    trained = RunPlan("simcse-mini", {"max_steps": "9", "config": str(config)}, None, None, None, ())
    assert str(trained.folder(Choice(), 2)) == "runs/tables/simcse-mini_53a07223f8_seed-2"
    untrained = RunPlan("untrained-mini-avg", {}, None, "m", "avg", ())
    assert str(untrained.folder(Choice(runs="r"), 0)) == "r/untrained-mini-avg_51f452a85d"
