"""What a folder of a model asks for, and does not get: code, other files, a pickle, another model."""

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_INDEX_NAME

from common.errors import BadInput
from common.files import sha256
from models.auxiliary import load_masked_lm
from models.encoder import load_encoder
from models.loading import load_backbone, load_config, load_tokenizer
from tests.folders import change_json
from tests.refusals import refused

KERNEL = "somebody/kernel"
KEPT = {
    "attn_implementation_internal",
    "use_kernels",
    "kernel_config",
}  # saved, and read by nothing


@pytest.fixture
def folder(tiny_bert, tmp_path):
    shutil.copytree(tiny_bert, tmp_path / "model")
    return tmp_path / "model"


def refusal(folder, said):
    message = refused(load_encoder, str(folder), "avg")
    assert re.search(said, message)
    return message


@pytest.fixture
def no_kernels(monkeypatch):
    """The library's doors to kernels, as if their package were here; whoever opens one fails."""

    def opened(*args, **kwargs):
        raise AssertionError(f"a kernel was asked for: {args}")

    monkeypatch.setattr("transformers.modeling_utils.lazy_import_flash_attention", opened)
    monkeypatch.setattr("transformers.integrations.sonicmoe.lazy_load_kernel", opened)


@pytest.mark.parametrize(
    "changes",
    [
        {"attn_implementation": KERNEL},
        {"_attn_implementation": KERNEL},
        {"attn_implementation_internal": KERNEL},
        {"_attn_implementation_internal": KERNEL},
        {"attn_implementation": {"": KERNEL, "text_config": KERNEL}},
        {"attn_implementation": "flash_attention_2"},
        {"experts_implementation": "sonicmoe"},
        {"use_kernels": True, "kernel_config": {"RMSNorm": KERNEL}},
        {"auto_map": {"AutoModel": "modeling.Evil", "AutoConfig": "modeling.Evil"}},
    ],
)
def test_no_key_of_a_configuration_reaches_a_kernel_or_code(folder, no_kernels, changes):
    change_json(folder / "config.json", **changes)
    (folder / "modeling.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    plain = load_backbone(str(folder))
    assert plain.config._attn_implementation == "sdpa"
    encoder, tokenizer = load_encoder(str(folder), "avg")
    assert encoder.backbone.config._attn_implementation == "packed"
    encoder.save(str(folder / "saved"), tokenizer)
    assert not {"auto_map", *changes} & (
        json.loads((folder / "saved" / "config.json").read_text()).keys() - KEPT
    )
    assert not (folder / "ran").exists()


def test_no_code_of_a_tokenizer_or_a_module_is_run(folder, monkeypatch):
    """Its class, its `auto_map`, its template for chats, and a module of a class that would have to be imported."""
    load_encoder(str(folder), "avg")[0].save(str(folder), load_tokenizer(str(folder)))
    for name in ("tokenization.py", "evil.py"):
        (folder / name).write_text(f"open({str(folder / 'ran')!r}, 'w')")
    code = {
        "auto_map": {"AutoTokenizer": ["tokenization.Evil", "tokenization.Evil"]},
        "chat_template": "{{ 1 / 0 }}",
    }
    change_json(folder / "tokenizer_config.json", **code)
    modules = json.loads((folder / "modules.json").read_text())
    monkeypatch.syspath_prepend(folder)
    change_json(folder / "config.json", sentence_embedding=None)
    assert load_encoder(str(folder))[0].pooling == "avg"
    for module in modules:
        theirs, module["type"] = module["type"], "evil.Pooling"
        (folder / "modules.json").write_text(json.dumps(modules))
        with pytest.raises(BadInput, match=r"type evil\.Pooling is not supported"):
            load_encoder(str(folder))
        module["type"] = theirs
    assert not (folder / "ran").exists()


FORMS = "models.{0} models.{0}.{0} sentence_transformer.modules.{1}.{0} base.modules.{1}.{0}"


@pytest.mark.parametrize("form", FORMS.split())
def test_modules_are_read_in_the_spelling_of_every_version(folder, form):
    load_encoder(str(folder), "avg")[0].save(str(folder), load_tokenizer(str(folder)))
    change_json(folder / "config.json", sentence_embedding=None)
    modules = json.loads((folder / "modules.json").read_text())
    for module, name in zip(modules, ("Transformer", "Pooling"), strict=True):
        module["type"] = f"sentence_transformers.{form.format(name, name.lower())}"
    (folder / "modules.json").write_text(json.dumps(modules))
    assert load_encoder(str(folder))[0].pooling == "avg"


def test_the_parts_of_a_configuration_reach_no_kernel(tmp_path):
    from transformers import CLIPConfig

    CLIPConfig().save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    content["text_config"] |= {"attn_implementation": KERNEL}
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert load_config(str(tmp_path)).text_config._attn_implementation is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}},
            "'quantization_config': its",
        ),
        (
            {"transformers_weights": "../other/model.safetensors"},
            "'transformers_weights': it names a weight file",
        ),
        ({"fusion_config": {"a": True}}, "'fusion_config': it replaces"),
    ],
)
def test_unusual_keys_of_a_configuration_are_refused(folder, changes, said):
    change_json(folder / "config.json", **changes)
    refusal(folder, said)


def test_output_options_of_a_configuration_change_no_vector(folder):
    encoder, tokenizer = load_encoder(str(folder), "avg")
    batch = tokenizer(["the dog", "a small river"], padding=True, return_tensors="pt")
    inputs = batch["input_ids"], batch["attention_mask"]
    expected = encoder.eval().embed(*inputs)
    outputs = {"output_attentions": True, "output_hidden_states": True, "return_dict": False}
    change_json(folder / "config.json", chunk_size_feed_forward=7, **outputs)
    assert torch.equal(load_encoder(str(folder), "avg")[0].eval().embed(*inputs), expected)


OUTSIDE = "../other/model.{0} {other}/model.{0} link.{0} sub/model.{0} other.pt"


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
@pytest.mark.parametrize("outside", OUTSIDE.split())
def test_an_index_may_only_name_files_of_its_folder(folder, tmp_path, outside, suffix):
    other = tmp_path / "other"
    other.mkdir()
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    write = {"safetensors": save_file, "bin": torch.save}[suffix]
    write(tensors, other / f"model.{suffix}")
    (folder / f"link.{suffix}").symlink_to(other / f"model.{suffix}")
    index = {
        "metadata": {},
        "weight_map": dict.fromkeys(tensors, outside.format(suffix, other=other)),
    }
    name = {"safetensors": SAFE_WEIGHTS_INDEX_NAME, "bin": WEIGHTS_INDEX_NAME}[suffix]
    (folder / name).write_text(json.dumps(index))
    refusal(folder, f"is not a {suffix} file of this folder; refused")


@pytest.mark.parametrize("cached", [False, True])
def test_weights_in_several_files_are_read_also_from_the_hubs_cache(folder, tmp_path, cached):
    """The cache's files are links to its blobs."""
    whole = load_backbone(str(folder)).state_dict()
    target = tmp_path / "models--a--b" / "snapshots" / "1" if cached else tmp_path / "shards"
    shutil.copytree(folder, target)
    load_backbone(str(folder)).save_pretrained(target, max_shard_size="20KB")
    (target / "model.safetensors").unlink()
    if cached:
        blobs = target.parents[1] / "blobs"
        blobs.mkdir()
        for file in list(target.iterdir()):
            file.rename(blobs / file.name)
            file.symlink_to(blobs / file.name)
    assert (target / SAFE_WEIGHTS_INDEX_NAME).exists()
    for name, value in load_backbone(str(target)).state_dict().items():
        assert torch.equal(value, whole[name])


@pytest.mark.parametrize(
    "load", [load_backbone, load_masked_lm, lambda path: load_encoder(path, "avg")]
)
def test_the_weights_of_a_run_are_those_in_its_record(folder, load):
    weights = folder / "model.safetensors"
    recorded = {"gone": "1", "config.json": "2", weights.name: sha256(weights)}
    (folder / "run.json").write_text(json.dumps({"result": recorded}))
    load(str(folder))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(
        BadInput, match=f"^{weights}: has changed since the run wrote it; restore the file"
    ):
        load(str(folder))


def test_an_adapter_is_refused_with_or_without_a_model_beside_it(folder):
    (folder / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": "somebody/else"})
    )
    refusal(folder, "an adapter .adapter_config")
