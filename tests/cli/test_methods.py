"""What every method must do; the folder is the list of them."""

import json
import shutil
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

import run_sup
import run_unsup
from common.arguments import ModelArguments, SentenceArguments
from common.command_line import parse
from data.tokenised import load_tokenised
from models.loading import load_tokenizer
from training import assembly
from training.registry import load_method, method_names, script_of
from training.run_arguments import RunArguments

UNLABELLED, LABELLED = map(method_names, ("run_unsup.py", "run_sup.py"))
METHODS = UNLABELLED + LABELLED
SHORT = {"max_steps": 4, "save_steps": 2, "eval_steps": 2}
CASES = [*((method, {}) for method in METHODS), ("s_simcse", {"per_operation": "true", "per_sentence": "true"})]
EDITED, PERTURBED = {"esimcse", "mirror_bert"}, {"consert"}  # methods whose views differ by more than dropout
FROZEN = {  # parts that never learn
    "infocse": {"lower"},
    "diffcse": {"generator"},
    "infocse_rtd": {"lower", "generator"},
    "moco": {"keys"},
    "esimcse": {"keys"},
    "sg_opt": {"start", "embeddings"},
}
ONE_VIEW = {"ct", "is_bert", "moco", "sg_opt"}  # methods that need no second copy


def model_of(argv, method):
    """The model as the script builds it, and the first batch as the script makes it."""
    module = load_method(script_of(method), method)
    model_args, method_args, data_args, args = parse(
        argv, (ModelArguments, module.Arguments, SentenceArguments, RunArguments), ""
    )
    tokenizer = load_tokenizer(model_args.model_name_or_path)
    model = assembly.build_model(module, method_args, model_args, tokenizer)
    columns = None if method in LABELLED else data_args.columns
    corpus = load_tokenised(data_args.train_file, tokenizer, columns, data_args.cache_dir)
    collator = assembly.make_collator(module, method_args, data_args, corpus, tokenizer, model, args.seed)
    return model, collator([(0, index, 0) for index in range(8)])


def train(argv, method):
    """What the method's script does."""
    (run_sup if method in LABELLED else run_unsup).main(argv)


@pytest.fixture(params=CASES, ids=lambda case: ", ".join([case[0], *case[1]]))
def whole(request, unsup, tmp_path):
    """A finished run of four steps, its method and a function that gives the arguments of such a run."""
    method, flags = request.param
    torch.manual_seed(0)
    arguments = partial(unsup, method=method, **SHORT, **flags)
    train(arguments("whole"), method)
    return method, tmp_path / "whole", arguments


def test_a_method_trains_resumes_and_is_exported(whole, stage_one_folder, tmp_path):
    method, folder, arguments = whole
    before, after = (load_file(folder / f"checkpoint-{n}" / "model.safetensors") for n in (2, 4))
    model, _ = model_of(arguments("whole"), method)
    learns = {name: p.requires_grad for name, p in model.named_parameters()}
    assert learns.keys() <= before.keys()
    for name, trained in learns.items():
        moved = not torch.equal(before[name], after[name])
        assert moved == (trained or ".memory.keys." in name), name  # a key encoder follows without a gradient
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert all(line["contrastive"] > 0 for line in lines if "contrastive" in line)
    _, info = AutoModel.from_pretrained(folder, add_pooling_layer=False, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    record = json.loads((folder / "run.json").read_text())
    exported, start = load_file(folder / "model.safetensors"), load_file(stage_one_folder / "model.safetensors")
    trained = load_file(folder / f"checkpoint-{record['best']['step']}" / "model.safetensors")
    assert len(exported) == len(model.encoder.backbone.state_dict())
    assert all(torch.equal(value, trained[f"encoder.backbone.{name}"]) for name, value in exported.items())
    frozen = {name for name in exported if FROZEN.get(method, set()) & set(name.split("."))}
    assert {name for name, value in exported.items() if torch.equal(value, start[f"bert.{name}"])} == frozen

    shutil.copytree(folder, tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "checkpoint-4")
    (tmp_path / "cut" / "run.json").write_text(json.dumps(record | {"status": "running"}))
    if record["best"]["step"] > 2:
        (tmp_path / "cut" / "best" / "model.safetensors").write_bytes(b"to be written again")
    torch.manual_seed(99)
    train(arguments("cut"), method)
    again = load_file(tmp_path / "cut" / "checkpoint-4" / "model.safetensors")
    assert after.keys() == again.keys()
    assert all(torch.equal(after[name], again[name]) for name in after)


@pytest.mark.parametrize("method", METHODS)
def test_every_trainable_parameter_has_a_gradient_and_no_frozen_one(unsup, method):
    model, batch = model_of(unsup(method=method), method)
    model.train()(**batch).loss.backward()
    frozen, seen = FROZEN.get(method, set()), set()
    for name, p in model.named_parameters():
        parts = frozen & set(name.split("."))
        seen |= parts
        assert p.requires_grad != bool(parts), name
        assert p.grad is None if parts else p.grad.abs().max() > 0, name
    assert seen == frozen


@pytest.mark.parametrize("method", sorted({*UNLABELLED} - ONE_VIEW))
def test_the_two_views_really_differ(unsup, method):
    """By dropout alone, or by what was drawn of the words or embeddings; in every sentence."""
    model, batch = model_of(unsup(method=method), method)
    first, second = batch["input_ids"]
    assert torch.equal(first, second) == (method not in EDITED)
    seen = []
    model.encoder.register_forward_hook(lambda module, given, made: seen.append(made.pooled))
    model.train()(**batch)
    assert len(first.unique(dim=0)) == len(first) == 8
    assert apart(*seen[0].view(2, 8, -1)).min() > 1e-3
    model.eval()(**batch)
    assert (apart(*seen[-1].view(2, 8, -1)).max() > 1e-3) == (method in EDITED | PERTURBED), (
        "without dropout equal views are"
    )


def test_momentum_keys_differ_from_the_queries_by_dropout(unsup):
    model, batch = model_of(unsup(method="moco"), "moco")
    [ids], [mask] = batch["input_ids"], batch["attention_mask"]
    keys = model.objectives[0].memory.keys
    assert apart(model.train().encoder(ids, mask).pooled, keys(ids, mask)).min() > 1e-3
    assert apart(model.eval().encoder(ids, mask).pooled, keys(ids, mask)).max() < 1e-5


def apart(one, two):
    """Distance of each pair of rows."""
    return (one - two).norm(dim=1).detach()


@pytest.mark.parametrize("method", ["moco", "esimcse"])
def test_the_queue_really_holds_negatives(unsup, tmp_path, method):
    run_unsup.main(unsup("run", method, **SHORT))
    state = load_file(tmp_path / "run" / "checkpoint-2" / "model.safetensors")
    [vectors] = [value for name, value in state.items() if name.endswith("queue.vectors")]
    [pushed] = [value for name, value in state.items() if name.endswith("queue.pushed")]
    assert pushed == 16
    assert (vectors[:16].norm(dim=1) > 0).all() and (vectors[16:] == 0).all()
    assert len(vectors[:16].unique(dim=0)) == 16


@pytest.mark.parametrize("kind", ["distilbert", "modernbert"])
@pytest.mark.parametrize("method", ["simcse", "moco", "esimcse"])
def test_contrastive_methods_take_other_backbones(unsup, tmp_path, bert_tokenizer, kind, method):
    from transformers import DistilBertConfig, DistilBertModel, ModernBertConfig, ModernBertModel

    size = len(bert_tokenizer)
    if kind == "distilbert":
        model = DistilBertModel(DistilBertConfig(vocab_size=size, dim=32, n_layers=2, n_heads=4, hidden_dim=64,
                                                 max_position_embeddings=64))  # fmt: skip
    else:
        ids = {name: getattr(bert_tokenizer, f"{other}_token_id") for name, other in
               (("pad_token_id", "pad"), ("cls_token_id", "cls"), ("sep_token_id", "sep"), ("bos_token_id", "cls"),
                ("eos_token_id", "sep"))}  # fmt: skip
        model = ModernBertModel(ModernBertConfig(vocab_size=size, hidden_size=32, num_hidden_layers=2,
                                                 num_attention_heads=4, intermediate_size=64,
                                                 max_position_embeddings=64, mlp_dropout=0.1, **ids))  # fmt: skip
    model.save_pretrained(tmp_path / "backbone")
    bert_tokenizer.save_pretrained(tmp_path / "backbone")
    run_unsup.main(unsup("run", method, model_name_or_path=tmp_path / "backbone", max_steps=2, save_steps=2))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "finished"
    first, second = (load_file(path / "model.safetensors") for path in (tmp_path / "backbone", tmp_path / "run"))
    assert any(not torch.equal(first[name], second[name]) for name in first if name in second)
