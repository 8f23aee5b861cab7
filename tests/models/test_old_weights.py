"""`pytorch_model.bin` in the layouts of the SimCSE family gives the vectors of safetensors."""

import logging

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModel
from transformers.utils import WEIGHTS_INDEX_NAME

from models.encoder import load_encoder
from models.loading import load_backbone, load_config, load_tokenizer
from tests.encoders import encode_of
from tests.folders import Evil, shard
from tests.refusals import refused

# The prefix of the head of SimCSE's training; other parts, `*` being one of the encoder's shapes;
# what a model leaves out. ESimCSE's BERT has a pooler that was never trained; DiffCSE and InfoCSE
# project by `mlp.net`.
DIFFCSE = "aux_bert.* electra_head generator.distilbert.* lm_head.dense mlp.net.0"
INFOCSE = "c_head.0.query lm_head.decoder mlm.FAMILY.* mlp.net.0"
LAYOUTS = {
    "simcse": ("mlp.dense", "", "mlp"),
    "converted": ("pooler.dense", "", "pooler"),  # by simcse_to_huggingface.py, without `bert.`
    "esimcse": ("mlp.dense", "momentum_model.* FAMILY.pooler.dense", "mlp, momentum_model, pooler"),
    "diffcse": ("", DIFFCSE, "aux_bert, electra_head, generator, lm_head, mlp"),
    "infocse": ("", INFOCSE, "c_head, lm_head, mlm, mlp"),
    "bert": ("", "cls.predictions.transform.dense cls.seq_relationship", "cls"),  # of 2018
}


def laid_out(layout, body, head, family):
    """The tensors of an encoder and of the parts around it, as they stand in a file."""
    trained, others, _ = LAYOUTS[layout]
    named = {f"{trained}.{name}": value for name, value in head.items() if trained}
    for name, value in body.items():
        if layout == "bert":
            name = name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
        named[name if layout == "converted" else f"{family}.{name}"] = value
    for part in others.replace("FAMILY", family).split():
        shapes = body if part.endswith("*") else {"weight": torch.zeros(16, 16)}
        for name, value in shapes.items():
            if value.is_floating_point():
                named[f"{part.removesuffix('.*')}.{name}"] = torch.randn_like(value)
    return named


@pytest.fixture
def checkpoint(request, tiny, tmp_path):
    """(folder without weights, tensors of the encoder, its head, its family, its vectors)."""
    family = getattr(request, "param", "bert")
    source, folder, plain = str(tiny(family)), tmp_path / "model", tmp_path / "plain"
    torch.manual_seed(5)
    model = AutoModel.from_config(load_config(source))
    for part, target in ((model.config, folder), (model, plain)):
        part.save_pretrained(target)
        load_tokenizer(source).save_pretrained(target)
    body, head = {}, {}
    for name, value in model.state_dict().items():
        part = head if name.startswith("pooler.") else body
        part[name.removeprefix("pooler.dense.")] = value.clone()
    expected = {pooling: vectors(plain, pooling) for pooling in ("cls_before_pooler", "pooler")}
    return folder, body, head, family, expected


def vectors(folder, pooling):
    texts = ["the dog runs", "a river", "the cat sees the small house near a river"]
    return encode_of(folder, pooling)(texts)


@pytest.mark.parametrize(
    ("checkpoint", "layout"),
    [*(("bert", layout) for layout in LAYOUTS), ("roberta", "simcse"), ("roberta", "infocse")],
    indirect=["checkpoint"],
)
def test_every_layout_gives_the_vectors_of_safetensors_bit_for_bit(checkpoint, layout, caplog):
    folder, body, head, family, expected = checkpoint
    tensors = laid_out(layout, body, head, family)
    torch.save(tensors, folder / "pytorch_model.bin")
    with caplog.at_level(logging.INFO, "models.loading"):
        assert np.array_equal(vectors(folder, "cls_before_pooler"), expected["cls_before_pooler"])
    trained, _, left_out = LAYOUTS[layout]
    [message] = caplog.messages
    assert message.endswith(f"pytorch_model.bin, read as tensors only; left out: {left_out}")
    if trained:
        assert np.array_equal(vectors(folder, "pooler"), expected["pooler"])
    else:
        refused(vectors, folder, "pooler", match=r"lacks 2 tensors .* pooler\.dense")
    (folder / "pytorch_model.bin").unlink()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    for pooling in expected if trained else ["cls_before_pooler"]:
        assert np.array_equal(vectors(folder, pooling), expected[pooling])


def test_weights_in_several_files_in_the_format_before_zip_and_in_half_precision(checkpoint):
    folder, body, head, family, expected = checkpoint
    tensors = laid_out("esimcse", body, head, family)
    shard(folder, tensors)
    for pooling in expected:
        assert np.array_equal(vectors(folder, pooling), expected[pooling])
    (folder / WEIGHTS_INDEX_NAME).unlink()
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert np.array_equal(vectors(folder, "pooler"), expected["pooler"])
    half = {name: value.half() for name, value in tensors.items()}
    torch.save(half, folder / "pytorch_model.bin")
    before = vectors(folder, "pooler")
    save_file(half, folder / "model.safetensors", {"format": "pt"})  # read before the pickle
    assert np.array_equal(vectors(folder, "pooler"), before)


WORDS = "embeddings.word_embeddings.weight"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda body: {n: v for n, v in body.items() if n != WORDS}, f"lacks 1 tensors .* {WORDS}"),
        (lambda body: body | {WORDS: body[WORDS] * float("nan")}, f"'{WORDS}' is not finite"),
        (lambda body: body | {WORDS: torch.ones(3, 5)}, "its tensors have other sizes than its"),
        (lambda body: {"model": body}, "contains more than weights"),
        (lambda body: [*body.values()], "contains more than weights"),
    ],
)
def test_damaged_or_unusual_weights_are_refused_in_both_formats(tiny_bert, tmp_path, change, said):
    load_config(str(tiny_bert)).save_pretrained(tmp_path)
    changed = change(load_backbone(str(tiny_bert)).state_dict())
    torch.save(changed, tmp_path / "pytorch_model.bin")
    refused(load_backbone, str(tmp_path), match=said)
    if "contains more" not in said:  # then safetensors are read before the pickle
        save_file(changed, tmp_path / "model.safetensors", {"format": "pt"})
        refused(load_backbone, str(tmp_path), match=said)


@pytest.mark.parametrize("pooling", ["cls_before_pooler", "pooler"])
@pytest.mark.parametrize("sharded", [False, True])
def test_a_pickle_that_would_run_code_is_refused(checkpoint, tmp_path, sharded, pooling):
    folder, body, head, family, _ = checkpoint
    file = folder / "pytorch_model.bin"
    if sharded:
        file = shard(folder, laid_out("simcse", body, head, family))
    torch.save({"x": Evil(tmp_path / "ran")}, file)
    said = f"{file}: damaged, or contains more than weights; refused, and no code of it was run"
    assert refused(load_encoder, str(folder), pooling) == said
    assert not (tmp_path / "ran").exists()
