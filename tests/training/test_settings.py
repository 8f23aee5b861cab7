"""One parser, one object: files give defaults, flags win, Python fills the same dataclasses."""

import json
import shutil
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import get_args, get_type_hints

import numpy as np
import pytest
from transformers import SchedulerType, TrainingArguments

from common import ranges
from common.arguments import ModelArguments, PretrainArguments, ScoredArguments, SentenceArguments
from common.errors import BadInput
from common.old_flags import TRAINER
from common.ranges import Count, CountOrZero, Positive, Rate, Share, Weight, check_range, flag
from tests.folders import change_json
from tests.refusals import refused
from tests.sources import ROOT
from training import settings
from training.config_files import read_config
from training.methods import STAGE_ONE, SUP, UNSUP, load_method, method_names
from training.run_arguments import RunArguments
from training.settings import fill, read

METHODS = [load_method(name).arguments for name in method_names()]


@pytest.fixture
def config(tmp_path):
    def write(content, name="config"):
        path = tmp_path / f"{name}.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def parsed(config_text, *flags, config, script=UNSUP):
    method = [] if script == STAGE_ONE else ["--method=simcse"]
    return read(script, ["--config", config(config_text), "--use_cpu", *method, *flags], "")


def test_the_command_repeats_the_settings_without_the_file(config):
    text = "max_length: 48\ntrain_file: [a b.txt, c.txt]\ntest_tasks: none\n"
    flags = ["--learning_rate=1e-5", "--upsample", "--max_rows=100"]
    settings = parsed(text, *flags, config=config)
    assert settings.command[:2] == ["python", "run_unsup.py"]
    assert "--config" not in settings.command and {*settings.sources.values()} > {"auto"}
    again = read(UNSUP, settings.command[2:], "")
    assert again.values == settings.values and "bf16: " in settings.describe_choices()
    python = fill(UNSUP, PYTHON)
    assert read(UNSUP, python.command[2:], "").values == python.values


def test_values_in_a_file_are_parsed_like_flags(config):
    text = """learning_rate: 3e-5, max_length: 010, run_name: 12:30, model_name_or_path: 007,
        dropout: 0, logging_first_step: no, dry_run: yes, lr_scheduler_kwargs: {power: 2},
        save_steps: 50, output_dir: off, dev: stsb"""
    settings = parsed("\n".join(line.strip() for line in text.split(",")), config=config)
    expected = {"learning_rate": 3e-5, "max_length": 10, "run_name": "12:30", "save_steps": 50}
    expected |= {"model_name_or_path": "007", "output_dir": "off"}
    expected |= {"dropout": 0.0, "logging_first_step": False, "dry_run": True, "dev": "stsb"}
    expected["lr_scheduler_kwargs"] = {"power": 2}
    assert {name: settings.values[name] for name in expected} == expected
    assert isinstance(settings.model_args.dropout, float)


PYTHON = {"method": "simcse", "use_cpu": True, "learning_rate": 1, "max_length": 24}
PYTHON |= {"test_tasks": ["STS12", "MR"], "lr_scheduler_kwargs": {"num_cycles": 2}}


def test_python_fills_the_same_dataclasses():
    others = {"lr_scheduler_type": SchedulerType.COSINE, "output_dir": Path("run")}
    others |= {"text_column": "text", "dev_file": None, "max_length": np.int32(24)}
    values = fill(UNSUP, PYTHON | others).values
    expected = PYTHON | {"lr_scheduler_type": "cosine", "output_dir": "run"}
    expected |= {"text_column": ["text"], "dev_file": None}
    assert {name: values[name] for name in expected} == expected
    json.dumps(values)


WRONG = [("seed", 1.5), ("seed", True), ("seed", "7"), ("bf16", "yes"), ("dev", 3), ("method", 3)]
WRONG += [("learning_rate", float("nan")), ("train_file", 3), ("config", 3), ("temprature", 0.1)]


@pytest.mark.parametrize(("name", "value"), [*WRONG, ("text_column", ["a", 1])])
def test_python_values_of_the_wrong_type_or_range_are_refused_by_name(name, value):
    assert name in refused(fill, UNSUP, PYTHON | {name: value})


def test_bf16_without_a_gpu_for_it_and_a_flag_of_a_head_without_one_are_refused(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    wrong = PYTHON | {"use_cpu": False, "bf16": True}
    assert "leave out --use_cpu and --bf16" in refused(fill, UNSUP, wrong)
    said = refused(fill, STAGE_ONE, {"head_layers": 0, "aux_mask_rate": 0.5})
    assert "--aux_mask_rate: does nothing without --head_layers" in said


def test_what_the_trainer_would_ignore_or_is_set_here_is_no_flag():
    fields = RunArguments.__dataclass_fields__
    for name in TRAINER:
        assert name in fields
        assert "; here: " in refused(fill, UNSUP, {"method": "ct", name: True}), name


def test_a_later_file_takes_back_values_and_has_some_for_single_files(config):
    names = ("moco", "simcse")
    files = [config(f"method: {name}\nseed: 1\nmax_steps: 9", f"{name}-a") for name in names]
    small = config("seed:\nmax_steps: 5\nmo*-a: {queue_size: 7, num_train_epochs: 2}\n", "small")
    moco, simcse = (read_config(file, small) for file in files)
    assert moco == {"method": "moco", "queue_size": "7", "num_train_epochs": "2"}
    assert simcse == {"method": "simcse", "max_steps": "5"}
    wrong = config("moca-*: {queue_size: 7}", "wrong")
    assert "unknown key 'moca-*'" in refused(fill, UNSUP, {"config": [files[0], wrong]})


def test_a_configuration_of_another_script_names_it():
    stage_one, infocse = (f"configs/{name}-bert-base.yaml" for name in ("aux", "infocse"))
    for script, config, needed in (
        (UNSUP, stage_one, STAGE_ONE),
        (STAGE_ONE, infocse, UNSUP),
        (SUP, infocse, UNSUP),
        (UNSUP, "configs/consert-sup-bert-base.yaml", SUP),
    ):
        assert needed in refused(fill, script, {"config": ROOT / config})


def test_files_combine_the_later_wins_and_a_flag_over_all_wherever_it_stands(config):
    texts = ["method: moco\nseed: 1\nmax_steps: 9", "num_train_epochs: 2\nqueue_size: 7\nseed: 2"]
    texts[1] += "\npooling: avg"
    paths = [config(text, name) for text, name in zip(texts, "ab", strict=True)]
    for made in (
        read(UNSUP, ["--pooling", "cls", "--config", *paths, "--dev=none"], ""),
        read(UNSUP, ["--config", *paths, "--dev=none", "--pooling=cls"], ""),
        fill(UNSUP, {"config": paths, "dev": "none", "pooling": "cls"}),
    ):
        run = made.args
        assert (run.seed, run.max_steps, run.num_train_epochs) == (2, -1, 2)
        assert made.method_args.queue_size == 7
        assert [made.sources[name] for name in ("method", "seed")] == paths
        assert (made.values["pooling"], made.sources["pooling"]) == ("cls", "flag")
    assert read_config(*paths)["method"] == "moco"


BAD_FILES = [("max_lenght: 32", "unknown key 'max_lenght'; did you mean '--max_length'?")]
BAD_FILES += [("temp: 0.05", "unknown key 'temp'; here: --temperature"), ("dev: sick", "dev")]
BAD_FILES += [("seed: 1\nmax_length: 2\nseed: 1", "'seed' is repeated")]
BAD_FILES += [("pooling: [avg, cls]", "'pooling' takes one value, not 2")]
BAD_FILES += [("train_file: [a, '']", "'train_file' needs a value"), ("dropout: 0,1", "dropout")]
BAD_FILES += [("query_prompt: null", "'query_prompt' needs a value"), ("cache_dir: ~", "omit the")]
BAD_FILES += [("max_length: 3.5", "max_length"), ("dry_run: maybe", "dry_run")]
BAD_FILES += [("- pooling", "must be a YAML mapping"), ("pooling: a: b", "not a YAML file")]
BAD_FILES += [("pooling: zwölf".encode("latin-1"), "not a YAML file")]


@pytest.mark.parametrize(("text", "said"), BAD_FILES)
def test_a_bad_file_is_refused_by_name_and_key(config, text, said):
    message = refused(parsed, text, config=config)
    assert message.startswith(config(text) + ": ")
    assert said in message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--max_lenght 3", "unknown argument '--max_lenght'; did you mean '--max_length'?"),
        ("stray", "unknown argument 'stray'"),
        ("--max_len 3", "unknown argument '--max_len'"),
        ("--seed", "--seed: expected one argument"),
        ("--max_length many", "--max_length"),
        ("--seed 3 4", "unknown argument '4'"),
        ("--no_seed 3 4", "unknown argument '--no_seed'; did you mean '--seed'?"),
        ("--temp 0.05", "unknown argument '--temp'; here: --temperature"),
        ("--mlm_weight 1", "here: --aux_weight of --method infocse"),
        ("--overwrite_output_dir", "here: another --output_dir"),
        ("--data_seed=3", "here: --seed"),
        ("--patience 2 --dev none", "--patience: does nothing with --dev none"),
        ("--dev_file a.tsv --dev none", "--dev_file: does nothing with --dev none"),
        ("--upsample", "--upsample: does nothing without --max_rows"),
        ("--cuda_graph true --chunk_size 8", "--cuda_graph: does nothing beside --chunk_size"),
        ("--fp16 true", "--fp16: needs a GPU"),
        ("--method=nli", "--method nli: train it with run_sup.py"),
        ("--method=spans", "--method spans: it is 'cropping' now; choose one of"),
        ("--method=infocse --mask_recipe=mask", "'--mask_recipe'; it is '--mask_scheme' now"),
        ("--method=memory_bank --queue_size=4", "'--queue_size'; it is '--negatives' now"),
        ("--config=configs/aux-read-bert-base.yaml", "it is 'aux-retromae-bert-base' now"),
    ],
)
def test_bad_flags_are_refused_by_name(words, said):
    words = words.split()
    if not words[0].startswith("--method"):
        words.insert(0, "--method=simcse")
    assert said in refused(read, UNSUP, ["--use_cpu=yes", *words], "")


def test_two_dev_scores_are_refused_together():
    @dataclass
    class More(ScoredArguments):
        dev_labels: str | None = flag(None, "", instead_of="dev")

    refused(More, dev_labels="a", dev_file="b", match="--dev_labels: does nothing beside --dev_f")
    assert More(dev_labels="a", patience=2).dev == "stsb"


def test_a_flag_replaces_the_alternatives_in_the_file(config):
    text = config("train_file: [a.txt]\nmodel_name_or_path: m\ndev_file: pairs.tsv\nmax_steps: 3\n")
    every = {"train_file", "model_name_or_path", "dev_file", "max_steps"}
    replaced = {"--dataset_name=o/n": "train_file", "--dev=none": "dev_file"}
    replaced |= {"--num_train_epochs=2": "max_steps", "--max_steps=4": None}
    for word, gone in replaced.items():
        settings = read(UNSUP, [f"--config={text}", "--method=simcse", word], "")
        assert every & settings.given.keys() == every - {gone}
    epochs, unset = config("num_train_epochs: 8", "epochs"), config("max_steps:", "unset")
    for words in ([epochs, "--max_steps=-1"], [epochs, unset]):
        settings = read(UNSUP, ["--method=simcse", "--config", *words], "")
        assert settings.args.num_train_epochs == 8 and settings.args.max_steps == -1


@pytest.mark.parametrize(
    "args", [ModelArguments, PretrainArguments, *METHODS], ids=lambda k: k.__module__ + k.__name__
)
def test_a_number_out_of_the_range_of_its_type_is_refused_by_name(args):
    """Every number of a method says its range: nothing else would look at a negative weight."""
    hints = get_type_hints(args, include_extras=True)
    plain = get_type_hints(args)
    numbers = {name for name in plain if {int, float} & {plain[name], *get_args(plain[name])}}
    ranged = {name for name in numbers if [*ranges.ranges_of(hints[name])]}
    # A logarithm; a layer, looked up in the model.
    assert numbers - ranged <= {"hard_negative_weight", "skip_from"}
    for name in ranged:
        refused(check_range, name, -1, hints[name], match=f"{name} -1: must be ")


OURS = """adamw aux_cls aux_mask_rate bow_weight cache_dir chunk_size columns
config_name cuda_graph data_dir dataset_name dev dev_file document_prompt dropout dry_run
head_init head_layers held_out mask_rate max_length max_rows method model_name_or_path output_init
packed patience pooling projection query_prompt skip_from test_tasks text_column
tokenizer_name train_file train_pooling upsample vocabulary_size whole_words""".split()
OF_METHODS = """adversarial_size aux_detach aux_frozen_eval aux_init aux_stop_words aux_views
aux_weight bank_size complement complement_pooling consistency_weight contrastive_weight crop_least
crop_most delete_rate dimension_temperature dimension_weight distance_weight
false_above feature_cutoff features generator hard_negative_weight
linear_only mask_scheme mlm_weight momentum negatives noise_share off_dropout
per_operation per_sentence positive_scale queue_size rank_loss rank_weight rate_distribution
rate_high rate_low repeat_rate rtd_mask_rate rtd_weight span_tokens teacher
teacher_pooling teacher_share temperature template template_2 token_cutoff view_1
view_2""".split()


def test_a_new_flag_is_a_decision():
    """A flag of ours is set by a configuration, a table or a study, or chosen by a user."""
    theirs = {field.name for field in fields(TrainingArguments)}
    kinds = (ModelArguments, PretrainArguments, SentenceArguments, RunArguments)
    shared = {field.name for kind in kinds for field in fields(kind)} - theirs
    assert sorted(shared) == OURS
    assert sorted({f.name for kind in METHODS for f in fields(kind)} - shared) == OF_METHODS


ENDS = [(Weight, -0.1, 0.0), (Positive, 0.0, 1e-9), (Rate, 1.0, 0.0), (Rate | None, 1.0, 0.0)]
ENDS += [(Share, 0.0, 0.999), (Share, 1.0, 1e-9), (Count, 0, 1), (CountOrZero, -1, 0)]


@pytest.mark.parametrize(("hint", "refused", "taken"), [*ENDS, (list[Rate], 1.0, 0.0)])
def test_the_ends_of_the_ranges(hint, refused, taken):
    check_range("--value", taken, hint)
    with pytest.raises(BadInput, match=f"--value {refused}: must be "):
        check_range("--value", [taken, refused], hint)


GPU, NEW, OLD = {"cuda": True}, {"amx_bf16": True}, {"avx512_bf16": False}
MACHINES = [(GPU | {"bf16": True}, {}, [False, True]), (NEW, {}, [True, True])]
MACHINES += [(GPU | {"bf16": False}, {"use_cpu": "auto"}, [False, False])]
MACHINES += [(GPU | {"bf16": True} | OLD, {"use_cpu": True}, [True, False])]
MACHINES += [(OLD, {"use_cpu": "auto"}, [True, False]), (NEW, {"use_cpu": False}, [False, False])]


@pytest.mark.parametrize(("machine", "flags", "chosen"), MACHINES)
def test_auto_device_and_precision_are_the_machine_s(machine, flags, chosen, monkeypatch):
    monkeypatch.setattr(settings.torch.cuda, "is_available", lambda: machine.get("cuda", False))
    monkeypatch.setattr(settings.torch.cuda, "is_bf16_supported", lambda **_: machine["bf16"])
    monkeypatch.setattr(settings.torch.cpu, "get_capabilities", lambda: machine)
    monkeypatch.setattr(
        settings, "_built", lambda kinds, values: [SimpleNamespace(**values)] * len(kinds)
    )
    settled = fill(UNSUP, {"method": "simcse", **flags})
    assert [settled.args.use_cpu, settled.args.bf16] == chosen
    assert ", by auto" in settled.describe_choices()


def test_the_layer_is_that_of_stage_one_or_half_of_the_model_s(tiny_bert, tmp_path):
    for name, change, layer in (("plain", {}, 2), ("trained", {"skip_from": 1}, 1)):
        folder = shutil.copytree(tiny_bert, tmp_path / name)
        change_json(folder / "config.json", **change)
        flags = {"skip_from": "auto", "use_cpu": True}
        settings = fill(STAGE_ONE, flags | {"model_name_or_path": folder})
        assert settings.model_args.skip_from == settings.given["skip_from"] == layer
    assert "--skip_from auto: depends on the model" in refused(fill, STAGE_ONE, flags)


@pytest.mark.parametrize(("script", "method"), [(UNSUP, "simcse"), (SUP, "nli"), (STAGE_ONE, None)])
def test_help_shows_our_flags_and_on_request_those_of_transformers(script, method, capsys):
    for word, theirs in (("-h", False), ("--help", False), ("--help_all", True)):
        with pytest.raises(SystemExit):
            read(script, [word, *([f"--method={method}"] if method else [])], "what it does")
        shown = capsys.readouterr().out
        assert "what it does" in shown and "--max_steps int" in shown
        assert ("--adam_beta1" in shown) == theirs
