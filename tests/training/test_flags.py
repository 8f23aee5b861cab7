"""The flags that are read from the source are those that the dataclasses have; and nothing large is imported for it."""

import subprocess
import sys
from dataclasses import fields
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from common.arguments import DataArguments, PretrainArguments
from common.errors import BadInput
from tests.sources import ROOT
from training import flags
from training.flags import load_method
from training.run_arguments import RunArguments, argument_groups


def real(kinds):
    """Name and help of every flag, as the classes say."""
    return {f.name: f.metadata.get("help", "") for kind in kinds for f in fields(kind) if f.init}


def read(found):
    return {name: flag.help for name, flag in found.items()}


def choices(kinds):
    """The choices of every flag that has some, as the classes say."""
    hints = {name: hint for kind in kinds for name, hint in get_type_hints(kind).items()}
    return {name: "{" + ",".join(get_args(hint)) + "}" for name, hint in hints.items() if get_origin(hint) is Literal}


@pytest.mark.parametrize("name", flags.method_names())
def test_flags_read_from_the_source_are_the_classes_own(name):
    method = load_method(name)
    assert flags.method_names(method.labels).count(name) == 1 and name not in flags.method_names(not method.labels)
    data = "ScoredArguments" if method.labels else "SentenceArguments"
    found, kinds = flags.declared("ModelArguments", data, method=name), argument_groups(method)
    assert read(found) == real(kinds)
    assert {flag: found[flag].words for flag in choices(kinds)} == choices(kinds)


def test_flags_of_stage_one_read_from_the_source_are_the_classes_own():
    kinds = (PretrainArguments, DataArguments, RunArguments)
    assert read(flags.declared("PretrainArguments", "DataArguments")) == real(kinds)


ANSWERS = {
    "--help": "--max_steps",
    "--help_all": "--adam_beta1",
    "--config=nothing": "nothing",
    "--config=configs/simcse-minii.yaml": "(no such file); did you mean 'configs/simcse-mini.yaml'?",
}


@pytest.mark.parametrize("script", ["run_unsup", "run_sup", "run_pretrain_aux"])
def test_help_and_mistakes_are_answered_without_the_large_libraries(script):
    code = (
        f"import sys, {script}\nfrom common.errors import BadInput\n"
        f"for flag in {[*ANSWERS]}:\n"
        f"    try:\n        {script}.main([flag])\n    except (SystemExit, BadInput) as error:\n        print(error)\n"
        "    assert not {'torch', 'transformers', 'numpy'} & {*sys.modules}\n"
        "    print('next answer')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    answers = done.stdout.split("next answer\n")[:-1]
    for said, answer in zip(ANSWERS.values(), answers, strict=True):
        assert said in answer


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("batch_size", "per_device_train_batch_size"), ("epochs", "num_train_epochs"), ("lr", "learning_rate"),
     ("dataset", "train_file"), ("max_seq_len", "max_length"), ("output", "output_dir"),
     ("model", "model_name_or_path"), ("temprature", "temperature")],
)  # fmt: skip
def test_common_synonyms_get_a_suggestion_on_the_command_line_and_in_a_file(typed, meant, tmp_path):
    with pytest.raises(BadInput, match=f"unknown argument '--{typed}'; did you mean '--{meant}'"):
        flags.check_sentence_command(["--method=simcse", f"--{typed}", "1"], "", False)
    (tmp_path / "x.yaml").write_text(f"{typed}: 1\n")
    with pytest.raises(BadInput, match=f"x.yaml: unknown key '{typed}'; did you mean '{meant}'"):
        flags.check_sentence_command(["--method=simcse", f"--config={tmp_path / 'x.yaml'}"], "", False)


def test_epochs_beside_steps_of_the_configuration_are_refused(tmp_path):
    (tmp_path / "x.yaml").write_text("max_steps: 250\nnum_train_epochs: 2\n")
    words = ["--method=simcse", f"--config={tmp_path / 'x.yaml'}"]
    for more in ([], ["--num_train_epochs", "3", "--max_steps=-1"]):
        flags.check_sentence_command([*words, *more], "", False)
    with pytest.raises(BadInput, match="--num_train_epochs 3: has no effect beside --max_steps 250; add"):
        flags.check_sentence_command([*words, "--num_train_epochs", "3"], "", False)


def test_every_suggested_flag_exists():
    known = {name for method in flags.method_names() for name in flags.declared("SentenceArguments", "ModelArguments",
                                                                                method=method)}  # fmt: skip
    assert {*flags._SYNONYMS} < known
    assert {*flags._COMMON} <= known | {"config_name"}
