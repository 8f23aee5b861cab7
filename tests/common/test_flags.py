"""What every command does with its flags."""

import argparse
import importlib

import pytest

from common.errors import BadInput
from common.flags import Parser, positive
from tests.sources import COMMANDS, module

NEEDED = {
    "adapt.__main__": "x --text=x --output=x",
    "baselines.__main__": "whitening x --train_file=x --output=x",
    "bench.__main__": "step",
    "eval.__main__": "x",
    "eval.analyse.__main__": "x",
    "eval.encode_corpus.__main__": "x --model=x --output=x",
    "export.__main__": "x --output=x",
    "papers.gradients": "--model=x",
    "report.__main__": "x",
    "run_pretrain_aux": "--use_cpu=true",
    "run_sup": "--method=nli --use_cpu=true",
    "run_unsup": "--method=simcse --use_cpu=true",
    "search.__main__": "build x --model=x --output=x",
}  # what a command asks for before it looks at the rest


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
    with pytest.raises(BadInput, match="--max_length: given twice; put all values after one flag"):
        parser.parse_args(["--max_length=3", "--max_length", "4"])
