"""`pytorch_model.bin` in the layouts of the SimCSE family gives the vectors of safetensors."""

import logging

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModel
from transformers.utils import WEIGHTS_INDEX_NAME

from common.errors import BadInput
from eval.encode import Encode
from models.encoder import load_encoder
from models.loading import load_backbone, load_config, load_tokenizer
from tests.folders import Evil, shard
from tests.refusals import refused

WIDTH = 16  # of the parts that a model leaves out


def noise(*shape):
    return torch.randn(shape)


def linear(name, out=WIDTH, of=WIDTH):
    return {f"{name}.weight": noise(out, of), f"{name}.bias": noise(out)}


def batch_norm_head():
    """DiffCSE's projector, which InfoCSE took over: two linear layers, two batch norms."""
    seen = {
        "running_mean": noise(WIDTH),
        "running_var": noise(WIDTH).abs(),
        "num_batches_tracked": torch.tensor(9),
    }
    first = under("mlp.net.1", {**seen, "weight": noise(WIDTH), "bias": noise(WIDTH)})
    last = under("mlp.net.4", {name: value.clone() for name, value in seen.items()})
    return {
        "mlp.net.0.weight": noise(WIDTH, WIDTH),
        "mlp.net.3.weight": noise(WIDTH, WIDTH),
        **first,
        **last,
    }


def like(tensors):
    return {name: noise(*value.shape) for name, value in tensors.items()}


def under(prefix, tensors):
    return {f"{prefix}.{name}": value for name, value in tensors.items()}


def simcse(body, head, family):
    return under(family, body) | under("mlp.dense", head)


def converted(body, head, family):
    """As simcse_to_huggingface.py writes it, with the position ids of transformers 4."""
    return body | under("pooler.dense", head) | {"embeddings.position_ids": torch.arange(64)[None]}


def esimcse(body, head, family):
    """With the momentum encoder, and BERT's pooler, which was never trained."""
    other = under("momentum_model", like(body))
    return (
        simcse(body, head, family) | linear(f"{family}.pooler.dense", *head["weight"].shape) | other
    )


def diffcse(body, head, family):
    """With the discriminator, the generator and heads for tokens and for sentences."""
    parts = under("aux_bert", like(body)) | under("generator.distilbert", like(body))
    return (
        under(family, body)
        | parts
        | linear("lm_head.transform.dense")
        | linear("electra_head")
        | batch_norm_head()
    )


def infocse(body, head, family):
    """With the model of its stage 1, the auxiliary layers and an output matrix."""
    other = under(f"mlm.{family}", like(body))
    heads = (
        linear("mlm.cls.predictions.decoder")
        | linear("lm_head.decoder")
        | linear("c_head.0.attention.self.query")
    )
    return under(family, body) | other | heads | batch_norm_head()


def bert(body, head, family):
    """A masked language model of 2018."""
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for now, then in old.items():
        body = {name.replace(now, then): value for name, value in body.items()}
    return (
        under(family, body)
        | linear("cls.predictions.transform.dense")
        | linear("cls.seq_relationship")
    )


LAYOUTS = {
    simcse: "mlp",
    converted: "pooler",
    esimcse: "mlp, momentum_model, pooler",
    diffcse: "aux_bert, electra_head, generator, lm_head, mlp",
    infocse: "c_head, lm_head, mlm, mlp",
    bert: "cls",
}


@pytest.fixture
def checkpoint(request, tiny, tmp_path):
    """(folder without weights, tensors of the encoder, its head, its family, its vectors)."""
    family = getattr(request, "param", "bert")
    source, folder = str(tiny(family)), tmp_path / "model"
    load_tokenizer(source).save_pretrained(folder)
    load_config(source).save_pretrained(folder)
    torch.manual_seed(5)
    model = AutoModel.from_config(load_config(source))
    model.save_pretrained(tmp_path / "plain")
    load_tokenizer(source).save_pretrained(tmp_path / "plain")
    tensors = {name: value.clone() for name, value in model.state_dict().items()}
    head = {
        name.split(".")[-1]: tensors.pop(name)
        for name in list(tensors)
        if name.startswith("pooler.")
    }
    expected = {
        pooling: vectors(tmp_path / "plain", pooling) for pooling in ("cls_before_pooler", "pooler")
    }
    return folder, tensors, head, family, expected


def vectors(folder, pooling):
    texts = ["the dog runs", "a river", "the cat sees the small house near a river"]
    return Encode(*load_encoder(str(folder), pooling))(texts)


@pytest.mark.parametrize(
    ("checkpoint", "layout"),
    [*(("bert", layout) for layout in LAYOUTS), ("roberta", simcse), ("roberta", infocse)],
    indirect=["checkpoint"],
)
def test_every_layout_gives_the_vectors_of_safetensors_bit_for_bit(checkpoint, layout, caplog):
    folder, body, head, family, expected = checkpoint
    tensors = layout(body, head, family)
    torch.save(tensors, folder / "pytorch_model.bin")
    with caplog.at_level(logging.INFO, "models.loading"):
        assert np.array_equal(vectors(folder, "cls_before_pooler"), expected["cls_before_pooler"])
    assert caplog.messages == [
        f"'{folder}': weights from pytorch_model.bin, read as tensors only; left out: "
        f"{LAYOUTS[layout]}"
    ]
    if layout in (simcse, converted, esimcse):
        assert np.array_equal(vectors(folder, "pooler"), expected["pooler"])
    else:
        with pytest.raises(BadInput, match=r"lacks 2 tensors .* pooler\.dense"):
            vectors(folder, "pooler")
    (folder / "pytorch_model.bin").unlink()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert np.array_equal(vectors(folder, "cls_before_pooler"), expected["cls_before_pooler"])
    if layout in (simcse, converted, esimcse):
        assert np.array_equal(vectors(folder, "pooler"), expected["pooler"])


def test_weights_in_several_files_in_the_format_before_zip_and_in_half_precision(checkpoint):
    folder, body, head, family, expected = checkpoint
    tensors = esimcse(body, head, family)
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


def test_what_is_loaded_is_saved_as_safetensors_only(checkpoint, tmp_path):
    folder, body, head, family, expected = checkpoint
    torch.save(simcse(body, head, family), folder / "pytorch_model.bin")
    encoder, tokenizer = load_encoder(str(folder), "pooler")
    encoder.save(tmp_path / "saved", tokenizer)
    assert not [*(tmp_path / "saved").rglob("*.bin*")]
    assert np.array_equal(vectors(tmp_path / "saved", None), expected["pooler"])


def without_one(body):
    return {
        name: value for name, value in body.items() if name != "embeddings.word_embeddings.weight"
    }


def not_finite(body):
    return body | {
        "embeddings.word_embeddings.weight": body["embeddings.word_embeddings.weight"]
        * float("nan")
    }


def another_shape(body):
    return body | {"embeddings.word_embeddings.weight": noise(3, 5)}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_one, "lacks 1 tensors .* embeddings.word_embeddings.weight"),
        (not_finite, "tensor 'embeddings.word_embeddings.weight' is not finite"),
        (another_shape, "its tensors have other sizes than its config.json says"),
        (lambda body: {"model": body}, "contains more than weights"),
        (lambda body: [*body.values()], "contains more than weights"),
    ],
)
def test_damaged_or_unusual_weights_are_refused_in_both_formats(tiny_bert, tmp_path, change, said):
    load_config(str(tiny_bert)).save_pretrained(tmp_path)
    changed = change(load_backbone(str(tiny_bert)).state_dict())
    torch.save(changed, tmp_path / "pytorch_model.bin")
    with pytest.raises(BadInput, match=said):
        load_backbone(str(tmp_path))
    if "contains more" not in said:
        save_file(
            changed, tmp_path / "model.safetensors", {"format": "pt"}
        )  # read before the pickle
        with pytest.raises(BadInput, match=said):
            load_backbone(str(tmp_path))


@pytest.mark.parametrize("pooling", ["cls_before_pooler", "pooler"])
@pytest.mark.parametrize("sharded", [False, True])
def test_a_pickle_that_would_run_code_is_refused_and_does_not(
    checkpoint, tmp_path, sharded, pooling
):
    folder, body, head, family, _ = checkpoint
    file = shard(folder, simcse(body, head, family)) if sharded else folder / "pytorch_model.bin"
    torch.save({"x": Evil(tmp_path / "ran")}, file)
    message = refused(load_encoder, str(folder), pooling)
    assert (
        message
        == f"{file}: damaged, or contains more than weights; refused, and no code of it was run"
    )
    assert not (tmp_path / "ran").exists()
