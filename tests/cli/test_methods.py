"""What every method must do; the folder is the list of them."""

import copy
import shutil
from dataclasses import fields
from functools import partial
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

import run_sup
import run_unsup
from common.arguments import ModelArguments
from common.errors import BadInput
from data.source import source_of
from data.tokenised import load_tokenised
from models.families import without_pooler
from models.loading import load_backbone, load_tokenizer
from models.objectives.moco import MomentumEncoder
from models.training import build_model
from tests.folders import history, record, rewind, same_weights
from tests.methods import OTHER_FAMILIES
from tests.refusals import refused
from training import builders
from training.methods import load_method, method_names, script_of
from training.settings import read

UNLABELLED, LABELLED = method_names(labels=False), method_names(labels=True)
METHODS = UNLABELLED + LABELLED
SHORT = {"max_steps": 2, "save_steps": 1, "eval_steps": 1}
CASES = [(method, {}) for method in METHODS]
CASES += [("s_simcse", {"per_operation": "true", "per_sentence": "true"})]
CASES += [("rankcse", {"teacher": "self"}), ("dclr", {"complement": "self"})]
CASES += [("promptbert", {"pooling": "mask"}), ("simcse", {"bow_weight": 0.5})]
CASES += [("simcse", {"family": name}) for name in OTHER_FAMILIES]
CASES += [("infocse", {"family": name, "aux_init": "random"}) for name in ("electra", "distilbert")]
CASES += [("simcse_mlm", {"family": "modernbert"})]
LOADED = {name: load_method(name) for name in UNLABELLED}
TWO_VIEWS = [name for name, it in LOADED.items() if len(it.views(it.arguments())) == 2]


def settings_of(argv, method):
    """The settings as the script reads them."""
    return read(script_of(method), argv, "")


def model_of(argv, method):
    """The model as the script builds it, and the first batch as the script makes it."""
    settings = settings_of(argv, method)
    method, model_args, method_args = settings.method, settings.model_args, settings.method_args
    data_args = settings.data_args
    tokenizer = load_tokenizer(model_args.model_name_or_path)
    corpus = load_tokenised(source_of(data_args, method.labels), tokenizer, data_args.cache_dir)
    tokenizer = method.tokenizer(method_args, tokenizer)
    model = build_model(method, method_args, model_args, tokenizer)
    collator = builders.build_collator(settings, method, corpus, tokenizer, model)
    return model, collator([(0, index, 0) for index in range(8)])


def train(argv, method):
    """What the method's script does."""
    (run_sup if method in LABELLED else run_unsup).main(argv)


@pytest.fixture(
    params=CASES,
    ids=lambda case: " ".join([case[0], *(f"{name}={value}" for name, value in case[1].items())]),
)
def whole(request, unsup, stage_one_folder, tiny, tmp_path):
    """A run of two steps, its method and start, and a function for the arguments of another."""
    method, flags = request.param[0], dict(request.param[1])
    start = tiny(flags.pop("family")) if "family" in flags else stage_one_folder
    torch.manual_seed(0)
    arguments = partial(unsup, method=method, model_name_or_path=start, **SHORT, **flags)
    train(arguments("whole"), method)
    return method, start, tmp_path / "whole", arguments


def test_a_method_trains_resumes_and_is_exported(whole, tmp_path):
    method, start, folder, arguments = whole
    before, after = (load_file(folder / f"checkpoint-{n}" / "model.safetensors") for n in (1, 2))
    model, _ = model_of(arguments("whole"), method)
    learns = {name: p.requires_grad for name, p in model.named_parameters()}
    assert learns.keys() <= before.keys()
    parts = model.named_modules()
    followers = tuple(f"{name}." for name, part in parts if isinstance(part, MomentumEncoder))
    for name, trained in learns.items():
        moved = not torch.equal(before[name], after[name])
        assert moved == (trained or name.startswith(followers)), name
        by_flag = method == "sg_opt" and ".embeddings." in name
        # What objectives freeze is checked in tests/models.
        assert trained != by_flag or name.startswith("objectives.")
    for name in (name for name in after if name.endswith("queue.vectors")):  # of two batches of 8
        held, empty = after[name].split([16, len(after[name]) - 16])
        assert after[name.replace("vectors", "pushed")] == 16 and len(held.unique(dim=0)) == 16
        assert held.norm(dim=1).min() > 0 and not empty.any()
    state = torch.load(folder / "checkpoint-2" / "optimizer.pt", weights_only=True)["state"]
    assert len(state) == sum(learns.values()), "what is frozen has none"
    assert all(line["contrastive"] > 0 for line in history(folder) if "contrastive" in line)
    bare = without_pooler(type(model.encoder.backbone))
    _, info = AutoModel.from_pretrained(folder, output_loading_info=True, **bare)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    run_record = record(folder)
    exported = load_file(folder / "model.safetensors")
    start = load_backbone(str(start)).state_dict()
    trained = load_file(folder / f"checkpoint-{run_record['best']['step']}" / "model.safetensors")
    assert len(exported) == len(model.encoder.backbone.state_dict())
    for name, value in exported.items():
        assert torch.equal(value, trained[f"encoder.backbone.{name}"]), name
    frozen = {name for name in exported if not learns.get(f"encoder.backbone.{name}", True)}
    assert {name for name, value in exported.items() if torch.equal(value, start[name])} == frozen

    cut = shutil.copytree(folder, tmp_path / "cut")
    rewind(cut, 1)
    if run_record["best"]["step"] > 1:
        (cut / "best" / "model.safetensors").write_bytes(b"to be written again")
    torch.manual_seed(99)
    train(arguments("cut"), method)
    assert same_weights(folder / "checkpoint-2", cut / "checkpoint-2")


def choices(options):
    """Name and value of every choice but the default of a dataclass's own enumerated fields."""
    for field in (field for field in fields(options) if field.name in options.__annotations__):
        kind = get_type_hints(options)[field.name]
        listed = ("true", "false") if kind is bool else get_args(kind)
        if kind is bool or get_origin(kind) is Literal:
            default = str(field.default).lower()
            yield from ((field.name, value) for value in listed if value.lower() != default)


@pytest.mark.parametrize("method", METHODS)
def test_every_choice_of_a_flag_trains_or_is_refused_in_a_line(unsup, monkeypatch, method):
    monkeypatch.setattr("models.heads.WIDE", 48)
    projections = [("projection", value) for value in ("none", "linear_tanh", "wide_mlp")]
    for name, value in [*projections, *choices(load_method(method).arguments)]:
        try:
            model, batch = model_of(unsup(method=method, **{name: value}), method)
        except BadInput as error:
            assert f"--{name} {value}" in str(error) and "\n" not in str(error)
            continue
        for _ in range(2):
            loss = model.train()(**batch).loss
            loss.backward()
            model.after_step()
        assert loss.isfinite() and batch["input_ids"].numel(), (name, value)


@pytest.mark.parametrize("teachers", [["self"] * 3, []])
def test_three_teachers_and_none_are_refused(stage_one_folder, teachers):
    start, method = str(stage_one_folder), load_method("rankcse")
    given = method.arguments(teacher=teachers), ModelArguments(model_name_or_path=start)
    refused(build_model, method, *given, load_tokenizer(start), match="--teacher: one or two")


@pytest.mark.parametrize("method", METHODS)
def test_a_probe_changes_nothing(unsup, method):
    """Ten steps with probes between them, and the same without any: equal bit for bit."""
    states = []
    for probes in (True, False):
        torch.manual_seed(0)
        model, batch = model_of(unsup(method=method), method)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
        model.train()
        for step in range(10):
            model(**batch | {"seed": step}).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            model.after_step()
            if probes:
                random, before = torch.get_rng_state(), copy.deepcopy(model.state_dict())
                model.probe(**batch)
                assert torch.equal(torch.get_rng_state(), random)
                assert all(torch.equal(v, before[name]) for name, v in model.state_dict().items())
        states.append(model.state_dict())
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


@pytest.mark.parametrize("method", TWO_VIEWS)
def test_the_two_views_really_differ(unsup, method):
    """By dropout alone, or by what was drawn of the words or embeddings; in every sentence."""
    settings = settings_of(unsup(method=method), method)
    views = settings.method.views(settings.method_args)
    edited = any(view.edit or view.template for view in views)
    assert views[0].edit is None or method == "cropping", "the second alone is edited"
    perturbed = any(view.perturb for view in views)
    model, batch = model_of(unsup(method=method), method)
    first, second = batch["input_ids"]
    assert torch.equal(first, second) == (not edited)
    seen = []
    model.encoder.register_forward_hook(lambda module, given, made: seen.append(made.pooled))
    model.train()(**batch)
    assert len(first.unique(dim=0)) == len(first) == 8
    assert apart(*seen[0].view(2, 8, -1)).min() > 1e-3
    seen.clear()
    model.eval()(**batch)
    changed = apart(*seen[0].view(2, 8, -1)).max() > 1e-3  # later calls are the objectives' own
    assert changed == (edited or perturbed), "without dropout equal views are"


def apart(left, right):
    """Distance of each pair of rows."""
    return (left - right).norm(dim=1).detach()
