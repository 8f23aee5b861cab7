"""What every method must do; the folder is the list of them."""

import json
import pkgutil
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

import assembly
import models.objectives
import models.supervised
import run_sup
import run_unsup
from arguments import ModelArguments, RunArguments, SentenceArguments
from command_line import parse
from models.loading import load_tokenizer

UNLABELLED = [module.name for module in pkgutil.iter_modules(models.objectives.__path__) if module.name != "base"]
LABELLED = [module.name for module in pkgutil.iter_modules(models.supervised.__path__)]
METHODS = UNLABELLED + LABELLED
SHORT = {"max_steps": 4, "save_steps": 2, "eval_steps": 2}


def model_of(argv, method):
    """The model as the script builds it, to ask what learns."""
    module = assembly.load_method(models.supervised if method in LABELLED else models.objectives, method)
    model_args, method_args, *_ = parse(argv, (ModelArguments, module.Arguments, SentenceArguments, RunArguments), "")
    return assembly.build_model(module, method_args, model_args, load_tokenizer(model_args.model_name_or_path))


def train(argv, method):
    """What the method's script does."""
    (run_sup if method in LABELLED else run_unsup).main(argv)


@pytest.fixture(params=METHODS)
def whole(request, unsup, tmp_path):
    """A finished run of four steps, its method and its arguments."""
    torch.manual_seed(0)
    train(unsup("whole", request.param, **SHORT), request.param)
    return request.param, tmp_path / "whole", unsup


def test_a_method_trains_resumes_and_is_exported(whole, tmp_path):
    method, folder, unsup = whole
    before, after = (load_file(folder / f"checkpoint-{n}" / "model.safetensors") for n in (2, 4))
    model = model_of(unsup("whole", method, **SHORT), method)
    learns = {name: p.requires_grad for name, p in model.named_parameters() if name in before}
    assert any(learns.values())
    for name, trained in learns.items():
        moved = not torch.equal(before[name], after[name])
        assert moved == (trained or ".memory.keys." in name), name  # a key encoder follows without a gradient
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert all(line["contrastive"] > 0 for line in lines if "contrastive" in line)
    _, info = AutoModel.from_pretrained(folder, add_pooling_layer=False, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]

    shutil.copytree(folder, tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "checkpoint-4")
    record = json.loads((tmp_path / "cut" / "run.json").read_text())
    (tmp_path / "cut" / "run.json").write_text(json.dumps(record | {"status": "running"}))
    if record["best"]["step"] > 2:
        (tmp_path / "cut" / "best" / "model.safetensors").write_bytes(b"to be written again")
    torch.manual_seed(99)
    train(unsup("cut", method, **SHORT), method)
    again = load_file(tmp_path / "cut" / "checkpoint-4" / "model.safetensors")
    assert after.keys() == again.keys()
    assert all(torch.equal(after[name], again[name]) for name in after)


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
