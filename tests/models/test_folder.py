"""What a folder of a model asks for, and does not get: code, other files, another model."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, CLIPConfig
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_INDEX_NAME

from data.tokenizer import word_starts
from models.encoder import SentenceEncoder, load_encoder
from models.heads import Dense, Head
from models.loading import load_backbone, load_config, load_tokenizer
from tests.encoders import encode_of
from tests.folders import change_json, normalise
from tests.refusals import refused

KERNEL = "somebody/kernel"
# Saved, and read by nothing.
KEPT = {"attn_implementation_internal", "use_kernels", "kernel_config"}
ATTENTION = "attn_implementation _attn_implementation attn_implementation_internal"
ATTENTION += " _attn_implementation_internal"
DOORS = [{name: KERNEL} for name in ATTENTION.split()]
DOORS += [{"attn_implementation": {"": KERNEL, "text_config": KERNEL}}]
DOORS += [{"attn_implementation": "flash_attention_2"}, {"experts_implementation": "sonicmoe"}]
DOORS += [{"use_kernels": True, "kernel_config": {"RMSNorm": KERNEL}}]
DOORS += [{"auto_map": {"AutoModel": "modeling.Evil", "AutoConfig": "modeling.Evil"}}]


@pytest.fixture
def folder(tiny_bert, tmp_path):
    shutil.copytree(tiny_bert, tmp_path / "model")
    return tmp_path / "model"


def refusal(folder, said):
    """The pooling is given unless the folder has modules."""
    pooling = None if (folder / "modules.json").exists() else "avg"
    assert re.search(said, refused(load_encoder, str(folder), pooling))


@pytest.mark.parametrize("changes", DOORS)
def test_no_key_of_a_configuration_reaches_a_kernel_or_code(folder, monkeypatch, changes):
    """The library's doors to kernels are as if their package were here; whoever opens one fails."""
    monkeypatch.setattr("transformers.modeling_utils.lazy_import_flash_attention", pytest.fail)
    monkeypatch.setattr("transformers.integrations.sonicmoe.lazy_load_kernel", pytest.fail)
    change_json(folder / "config.json", **changes)
    (folder / "modeling.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    plain = load_backbone(str(folder))
    assert plain.config._attn_implementation == "sdpa"
    encoder, tokenizer = load_encoder(str(folder), "avg")
    assert encoder.backbone.config._attn_implementation == "packed"
    encoder.save(str(folder / "saved"), tokenizer)
    saved = json.loads((folder / "saved" / "config.json").read_text())
    assert not {"auto_map", *changes} & (saved.keys() - KEPT)
    assert not (folder / "ran").exists()


def test_no_code_of_a_tokenizer_or_a_module_is_run(modules, monkeypatch):
    """Its class, its `auto_map`, its template for chats, and a module of a foreign class."""
    for name in ("tokenization.py", "evil.py"):
        (modules / name).write_text(f"open({str(modules / 'ran')!r}, 'w')")
    classes = {"AutoTokenizer": ["tokenization.Evil", "tokenization.Evil"]}
    change_json(modules / "tokenizer_config.json", auto_map=classes, chat_template="{{ 1 / 0 }}")
    load_tokenizer(str(modules)).save_pretrained(modules / "saved")
    assert "auto_map" not in (modules / "saved" / "tokenizer_config.json").read_text()
    monkeypatch.syspath_prepend(modules)
    assert load_encoder(str(modules))[0].pooling == "avg"
    content = json.loads((modules / "modules.json").read_text())
    for number in range(2):
        changed = [module.copy() for module in content]
        changed[number]["type"] = "evil.Pooling"
        (modules / "modules.json").write_text(json.dumps(changed))
        refusal(modules, r"type evil\.Pooling is not supported")
    assert not (modules / "ran").exists()


FORMS = "models.{0} models.{0}.{0} sentence_transformer.modules.{1}.{0} base.modules.{1}.{0}"


@pytest.mark.parametrize("form", FORMS.split())
def test_modules_are_read_in_the_spelling_of_every_version(modules, form):
    content = json.loads((modules / "modules.json").read_text())
    for module, name in zip(content, ("Transformer", "Pooling"), strict=True):
        module["type"] = f"sentence_transformers.{form.format(name, name.lower())}"
    (modules / "modules.json").write_text(json.dumps(content))
    assert load_encoder(str(modules))[0].pooling == "avg"


def test_the_parts_of_a_configuration_reach_no_kernel(tmp_path):
    CLIPConfig().save_pretrained(tmp_path)
    change_json(tmp_path / "config.json", text_config={"attn_implementation": KERNEL})
    assert load_config(str(tmp_path)).text_config._attn_implementation is None


def test_output_options_of_a_configuration_change_no_vector(folder):
    encoder, tokenizer = load_encoder(str(folder), "avg")
    batch = tokenizer(["the dog", "a small river"], padding=True, return_tensors="pt")
    inputs = batch["input_ids"], batch["attention_mask"]
    expected = encoder.eval().embed(*inputs)
    outputs = {"output_attentions": True, "output_hidden_states": True, "return_dict": False}
    change_json(folder / "config.json", chunk_size_feed_forward=7, **outputs)
    encoder = load_encoder(str(folder), "avg")[0].eval()
    assert torch.equal(encoder.embed(*inputs), expected)
    assert encoder.backbone.config.return_dict


OUTSIDE = "../other/model.{0} {other}/model.{0} sub/model.{0} other.pt"


@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
@pytest.mark.parametrize("outside", OUTSIDE.split())
def test_an_index_may_only_name_files_of_its_folder(folder, tmp_path, outside, suffix):
    other = tmp_path / "other"
    other.mkdir()
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    write = {"safetensors": save_file, "bin": torch.save}[suffix]
    write(tensors, other / f"model.{suffix}")
    weight_map = dict.fromkeys(tensors, outside.format(suffix, other=other))
    name = {"safetensors": SAFE_WEIGHTS_INDEX_NAME, "bin": WEIGHTS_INDEX_NAME}[suffix]
    (folder / name).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    refusal(folder, f"is not a {suffix} file of this folder; refused")


LINKED = """config.json model.safetensors tokenizer.json tokenizer_config.json
    special_tokens_map.json chat_template.jinja additional_chat_templates/tool.jinja modules.json
    1_Pooling/config.json sentence_bert_config.json config_sentence_transformers.json"""


@pytest.mark.parametrize("name", LINKED.split())
def test_no_file_is_read_through_a_link_that_leaves_the_folder(modules, tmp_path, name):
    """Its content would stand in what is saved: a user's credentials, say."""
    outside = tmp_path / "credentials"
    (modules / name).parent.mkdir(exist_ok=True)
    if (modules / name).exists():
        (modules / name).rename(outside)
    else:
        outside.write_text("{}")
    (modules / name).symlink_to(outside)
    refusal(modules, f"{name}: a link to a file outside the model's folder; copy the file itself")
    (modules / name).unlink()
    outside.rename(modules / "inside")
    (modules / name).symlink_to(modules / "inside")
    load_encoder(str(modules))


def test_no_folder_is_read_through_a_link_that_leaves_the_folder(modules, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "key.jinja").write_text("secret")
    (modules / "additional_chat_templates").symlink_to(tmp_path / "other")
    refusal(modules, r"key\.jinja: a link to a file outside the model's folder")
    (modules / "additional_chat_templates").unlink()
    (modules / "1_Pooling").rename(tmp_path / "1_Pooling")
    (modules / "1_Pooling").symlink_to(tmp_path / "1_Pooling")
    refusal(modules, r"1_Pooling/config\.json: a link to a file outside the model's folder")


def test_a_model_in_the_hubs_cache_needs_no_hub(folder, tmp_path, monkeypatch):
    """Links to blobs; weights in several files, and no tokenizer.json, as in older models."""
    whole, words = load_backbone(str(folder)), load_tokenizer(str(folder)).get_vocab()
    (folder / "vocab.txt").write_text("\n".join(sorted(words, key=words.get)))
    whole.save_pretrained(folder, max_shard_size="20KB")
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / name).unlink()
    cached = tmp_path / "models--owner--name"
    snapshot, blobs, refs = cached / "snapshots" / "1", cached / "blobs", cached / "refs"
    for part in (snapshot, refs):
        part.mkdir(parents=True)
    (refs / "main").write_text("1")
    folder.rename(blobs)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(file)
    assert (snapshot / SAFE_WEIGHTS_INDEX_NAME).exists()
    for name in ("huggingface_hub.constants.HF_HUB_CACHE", "transformers.utils.hub.HF_HUB_CACHE"):
        monkeypatch.setattr(name, str(tmp_path), raising=False)
    assert "HF_HUB_OFFLINE is set); give the folder" in refused(load_tokenizer, "owner/other")
    for path in ("owner/name", str(snapshot)):
        encoder, tokenizer = load_encoder(path, "avg")
        assert tokenizer.get_vocab() == words
        for name, value in whole.state_dict().items():
            assert torch.equal(value, encoder.backbone.state_dict()[name])


@pytest.fixture
def modules(folder):
    """The folder with sentence-transformers' modules alone."""
    load_encoder(str(folder), "avg")[0].save(str(folder), load_tokenizer(str(folder)))
    return change_json(folder / "config.json", sentence_embedding=...)


SETTINGS = "config_sentence_transformers.json"
LOADING = "sentence_bert_config.json"


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("config.json", {"quantization_config": {"quant_method": "x"}}, "'quantization_config'"),
        ("config.json", {"transformers_weights": "../other/model.safetensors"}, "names a weight"),
        ("config.json", {"fusion_config": {"a": True}}, "'fusion_config': it replaces"),
        ("config.json", {"num_labels": 3_000_000}, "has num_labels 3000000; at most 100000 are"),
        ("config.json", {"num_hidden_layers": 10**6}, "has num_hidden_layers 1000000; at most"),
        ("config.json", {"text_config": {"n_layer": 10**6}}, "has n_layer 1000000; at most"),
        ("tokenizer_config.json", {"model_max_length": -1}, "has model_max_length -1; give"),
        ("tokenizer_config.json", {"model_max_length": "x"}, "tokenizer"),
        ("tokenizer_config.json", {"model_input_names": ["x"]}, "which must begin with input_ids"),
        (SETTINGS, {"prompts": ["query: "]}, "has no valid 'prompts'"),
        (SETTINGS, {"prompts": {"query": ["a"]}}, "has no valid 'query'"),
        (SETTINGS, {"default_prompt_name": ["query"]}, "has no valid 'default_prompt_name'"),
        (SETTINGS, {"similarity_fn_name": "dot"}, "similarity is 'dot' .* compares by the cosine"),
        (SETTINGS, {"similarity_fn_name": ["dot"]}, "similarity is '.'dot'.'"),
        (SETTINGS, {"truncate_dim": 8}, f"truncate_dim 8 in {SETTINGS} is not supported"),
        (LOADING, {"do_lower_case": True}, "lower-casing of texts .do_lower_case. is not"),
        (LOADING, {"model_args": ["a"]}, "model_args .* is not supported"),
        (LOADING, {"model_args": {"a": 1}}, f"model_args .* in {LOADING}, not in the model's"),
        (LOADING, {"tokenizer_args": {"a": 1}}, f"tokenizer_args .* in {LOADING}, not in the"),
        (LOADING, {"max_seq_length": [32]}, "has no valid 'max_seq_length'"),
        (LOADING, {"query_length": 8}, f"query_length 8 in {LOADING} is not supported"),
        ("config.json", {"num_hidden_layers": 1}, "has tensors that a BertModel .* not have"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls"]}, "pooling '.*cls.*' is not supported"),
        ("1_Pooling/config.json", {"include_prompt": False}, "a pooling without the prompt's"),
    ],
)
def test_a_setting_that_cannot_be_or_would_change_vectors_is_refused(modules, name, values, said):
    change_json(modules / name, **values)
    refusal(modules, said)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("use_residual", True),
        ("module_input_name", "token_embeddings"),
        ("module_output_name", "x"),
    ],
)
def test_a_dense_module_of_other_inputs_or_outputs_is_refused(tiny_bert, tmp_path, key, value):
    tokenizer, width = load_tokenizer(str(tiny_bert)), 32
    head = Head(Dense(torch.nn.Linear(width, width), "Tanh"))
    SentenceEncoder(load_backbone(str(tiny_bert)), "avg", head, 64).save(tmp_path, tokenizer)
    change_json(tmp_path / "config.json", sentence_embedding=...)
    change_json(tmp_path / "2_Dense" / "config.json", **{key: value})
    (tmp_path / "infocse.json").unlink(missing_ok=True)
    refused(load_encoder, str(tmp_path), match=f"{key} {value} in 2_Dense/config.json is not supp")


def test_the_length_that_a_model_states_replaces_a_shorter_one_of_its_tokenizer(modules, sentences):
    change_json(modules / "tokenizer_config.json", model_max_length=8)
    change_json(modules / LOADING, max_seq_length=32)
    text = " ".join(sentences[:3])
    theirs = SentenceTransformer(str(modules), device="cpu").encode([text])
    assert np.allclose(encode_of(modules)([text]), theirs, atol=1e-5)


def test_buffers_that_older_libraries_saved_are_no_tensors_of_another_model(folder):
    tensors = load_file(folder / "model.safetensors")
    for name in ("embeddings.position_ids", "embeddings.token_type_ids", "encoder.version"):
        tensors[f"bert.{name}"] = torch.zeros(1, 8)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    load_encoder(str(folder), "avg")


def test_the_dot_product_of_unit_vectors_is_the_cosine(modules):
    change_json(modules / SETTINGS, similarity_fn_name="dot")
    normalise(modules)
    assert load_encoder(str(modules))[0].normalizes


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("Transformer:", "without a pooling module"),
        ("Transformer: Dense:../other", "'../other/config.json' is outside the model's"),
        ("Transformer: Other:", r"type \S+Other is not supported"),
        ("StaticEmbedding: Pooling:1_Pooling", "a first module of type .*StaticEmbedding is not"),
        ("Transformer:0_BERT Pooling:1_Pooling", "a Transformer in '0_BERT' is not supported"),
    ],
)
def test_modules_that_are_not_those_of_an_encoder_in_this_folder_are_refused(modules, listed, said):
    content = []
    for name, path in (module.split(":") for module in listed.split()):
        content.append({"type": f"sentence_transformers.models.{name}", "path": path})
    (modules / "modules.json").write_text(json.dumps(content))
    refusal(modules, said)


def test_of_the_oldest_layout_the_inner_folder_is_named(folder, tmp_path):
    (tmp_path / "old").mkdir()
    folder.rename(tmp_path / "old" / "0_BERT")
    refusal(tmp_path / "old", r"the oldest layout of sentence-transformers; give .*/0_BERT, with")
    refusal(tmp_path, r"has no config\.json; give the folder of a model")


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:1\n"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("model.safetensors", POINTER, "a pointer of Git LFS, not the file; run `git lfs pull`"),
        ("tokenizer.json", POINTER, "tokenizer.json: a pointer of Git LFS"),
        ("adapter_config.json", '{"base_model_name_or_path": "a/b"}', "an adapter .adapter_conf"),
        ("config.json", '{"model_type": "t5"}', "type 't5' is not supported"),
    ],
)
def test_a_file_that_is_not_an_encoder_s_is_refused(folder, name, content, said):
    (folder / name).write_text(content)
    refusal(folder, said)


def test_a_token_without_a_row_of_the_table_and_a_missing_tokenizer_are_refused(folder):
    tokenizer = load_tokenizer(str(folder))
    tokenizer.add_tokens(["<new>"])
    tokenizer.save_pretrained(folder)
    rows = load_config(str(folder)).vocab_size
    refusal(folder, f"has token ids up to {rows}, but the model's table {rows} rows")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    refusal(folder, "tokenizer")


def test_gaps_in_the_ids_and_a_missing_padding_token_change_nothing(folder, sentences):
    texts = sentences[:9]
    expected = encode_of(folder, "avg")(texts)
    content = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary[max(vocabulary, key=vocabulary.get)] += 5
    (folder / "tokenizer.json").write_text(json.dumps(content))
    change_json(folder / "tokenizer_config.json", pad_token=None)
    tokenizer = load_tokenizer(str(folder))
    assert len(word_starts(tokenizer)) == len(tokenizer) + 5
    model = AutoModel.from_pretrained(folder, add_pooling_layer=False)
    model.resize_token_embeddings(len(tokenizer) + 5)
    model.save_pretrained(folder)
    assert np.abs(encode_of(folder, "avg")(texts) - expected).max() < 1e-6


def test_a_dense_module_may_be_pickled(folder, sentences):
    encoder, tokenizer = load_encoder(str(folder), "cls_before_pooler")
    head = Head(Dense(torch.nn.Linear(32, 8), "Tanh"))
    SentenceEncoder(encoder.backbone, "cls", head, 64).save(str(folder), tokenizer)
    expected = encode_of(folder)(sentences[:3])
    file = folder / "2_Dense" / "model.safetensors"
    torch.save(load_file(file), file.with_name("pytorch_model.bin"))
    file.unlink()
    assert np.array_equal(encode_of(folder)(sentences[:3]), expected)


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (torch.zeros(1).expand(10**6, 10**4), "repeat their numbers, to 40,000,000,000"),
        (torch.eye(3).to_sparse(), "contains more than weights"),
        (torch.empty(10**6, 10**4, device="meta"), "contains more than weights"),
    ],
)
def test_a_pickle_of_tensors_without_their_numbers_is_refused(folder, tensor, said):
    (folder / "model.safetensors").unlink()
    torch.save({"embeddings.word_embeddings.weight": tensor}, folder / "pytorch_model.bin")
    refusal(folder, said)
