"""What every command does with its flags."""

import argparse
import importlib

import pytest

from common.errors import BadInput
from common.flags import Parser, labelled, positive
from tests.refusals import refused
from tests.sources import COMMANDS, module

# What a command asks for before it looks at the rest.
NEEDED = dict.fromkeys(("eval.__main__", "eval.analyse.__main__", "report.__main__"), "x")
NEEDED |= {"adapt.__main__": "x --text=x --output=x", "bench.__main__": "step"}
NEEDED |= {"baselines.__main__": "whitening x --train_file=x --output=x"}
NEEDED |= {"eval.encode_corpus.__main__": "x --model=x --output=x", "papers.gradients": "--model=x"}
NEEDED |= {"export.__main__": "x --output=x", "run_pretrain_aux": "--use_cpu=true"}
NEEDED |= {"run_sup": "--method=nli --use_cpu=true", "run_unsup": "--method=simcse --use_cpu=true"}
NEEDED |= {"search.__main__": "build x --model=x --output=x"}


@pytest.mark.parametrize("name", [module(path) for path in COMMANDS])
def test_an_unknown_flag_is_a_one_line_error_without_usage(name, capsys):
    with pytest.raises(BadInput, match="--no_such_flag"):
        importlib.import_module(name).main([*NEEDED.get(name, "").split(), "--no_such_flag"])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("old", ["--model_name_or_path=x", "--pooler cls", "--task_set sts"])
def test_a_flag_of_the_old_evaluation_names_what_to_use(old):
    name = old.replace("=", " ").split()[0]
    with pytest.raises(BadInput, match=f"unknown argument '{name}'; here: "):
        importlib.import_module("eval.__main__").main(old.split())


def test_a_count_is_at_least_one():
    assert positive("12") == 12
    for text in ("0", "-1", "1.5", "many", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="1 or more"):
            positive(text)


def test_a_flag_is_given_once():
    parser = Parser()
    parser.add_argument("--max_length")
    with pytest.raises(BadInput, match="--max_length: given twice; give it once"):
        parser.parse_args(["--max_length=3", "--max_length", "4"])


def test_a_model_has_the_last_part_of_its_path_or_the_name_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lr=3e-5").mkdir()
    models = ["/runs/second/best/", "org/model", "before=/a/x", "/c/lr=1/x", "lr=3e-5"]
    assert [*labelled(models)] == ["best", "model", "before", "x", "lr=3e-5"]
    assert labelled(models)["before"] == "/a/x" and labelled(models)["lr=3e-5"] == "lr=3e-5"
    for two in (["a=/x", "a=/y"], ["/x/a", "/y/a"]):
        assert "two models are named 'a'; rename one with NAME=" in refused(labelled, two)
