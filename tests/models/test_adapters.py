"""Low-rank adapters: what is trained, what is saved, and that both are one model."""

import pytest
import torch
from safetensors.torch import load_file

from common.errors import BadInput
from models.encoder import SentenceEncoder, load_encoder
from models.loading import load_backbone, load_tokenizer

LAYERS = 4


def adapted(folder, targets=(), packed=False, alpha=6.0):
    """An encoder with adapters as after training: B is not zero."""
    torch.manual_seed(5)
    encoder = SentenceEncoder(load_backbone(folder), "avg", None, 64, packed)
    encoder.adapt(3, alpha, 0.0, targets)
    for parameter in encoder.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.1)
    return encoder.eval()


def batch(tokenizer, sentences):
    made = tokenizer(sentences, padding=True, return_tensors="pt")
    return made["input_ids"], made["attention_mask"]


def test_an_adapter_adds_its_product_to_the_layer(folder):
    """W x + b + alpha / r * B (A x), of the queries and values of every layer and of nothing else."""
    encoder = adapted(folder)
    trained = [name for name, p in encoder.named_parameters() if p.requires_grad]
    assert len(trained) == LAYERS * 2 * 2 and all(".self.query." in n or ".self.value." in n for n in trained)
    layer = encoder.backbone.encoder.layer[1].attention.self.query
    x, a, b = torch.randn(5, 32), layer.lora_A["default"].weight, layer.lora_B["default"].weight
    assert a.shape == (3, 32) and b.shape == (32, 3)
    assert torch.allclose(layer(x), layer.base_layer(x) + 6.0 / 3 * (x @ a.T) @ b.T, atol=1e-5)


@pytest.mark.parametrize(("targets", "packed"), [([], True), (["all-linear"], False), (["output.dense", "key"], True)])
def test_the_saved_folder_is_the_adapted_model(folder, tmp_path, sentences, targets, packed):
    """In float64, so that no rounding stands between the two."""
    encoder, tokenizer = adapted(folder, targets, packed).double(), load_tokenizer(folder)
    ids, mask = batch(tokenizer, sentences[:9])
    encoder.save(str(tmp_path), tokenizer)
    plain, saved = load_backbone(folder).double(), load_file(tmp_path / "model.safetensors")
    bare = SentenceEncoder(plain, "avg", None, 64, packed).eval()
    with torch.no_grad():
        expected, start = encoder.embed(ids, mask), bare.embed(ids, mask)
        plain.load_state_dict(saved)
        assert (bare.embed(ids, mask) - expected).abs().max() < 1e-12
        assert (start - expected).abs().max() > 0.1
        assert (load_encoder(str(tmp_path))[0].eval().embed(ids, mask) - expected).abs().max() < 1e-4, "float32"


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["wuery"], "--lora_target: "),
        (["query", "kee"], "--lora_target kee: no layer"),
        (["LayerNorm"], "--lora_target: "),
    ],
)
def test_a_layer_that_cannot_be_adapted_is_refused(tiny_bert, targets, message):
    with pytest.raises(BadInput, match=message):
        adapted(str(tiny_bert), targets)
