"""Decoders as encoders: how they attend, what padding changes (nothing), who loads them."""

import functools

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, processors
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedTokenizerFast

from common.errors import BadInput
from models.encoder import SentenceEncoder, load_encoder
from models.loading import load_backbone, load_config, load_tokenizer, set_dropout
from tests.encoders import encode_of
from tests.methods import build_model, mask_of

KINDS = ["qwen2", "qwen3", "llama", "mistral", "gemma", "gemma2", "gemma3_text"]
POOLINGS = ["avg", "last_token"]
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8}
SIZE |= {"num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64}
SIZE |= {"initializer_range": 0.3}


@pytest.fixture(scope="module")
def decoder(roberta_tokenizer, tmp_path_factory):
    """A tiny causal language model; its tokenizer adds nothing and has no padding token."""
    backend = Tokenizer.from_str(roberta_tokenizer.backend_tokenizer.to_str())
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    options = {"eos_token": "</s>", "padding_side": "left", "model_max_length": 64}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **options)

    @functools.cache
    def folder(name):
        made = tmp_path_factory.mktemp(name)
        torch.manual_seed(2)
        size = SIZE | {"vocab_size": len(tokenizer) + 8, "pad_token_id": None}
        config = AutoConfig.for_model(name, **size)
        AutoModelForCausalLM.from_config(config).save_pretrained(made)
        tokenizer.save_pretrained(made)
        return str(made)

    return folder


def test_a_decoder_that_does_not_say_it_is_causal_is_taken_for_one():
    sizes = {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99, "pad_token_id": 1}
    backbone = AutoModel.from_config(AutoConfig.for_model("bloom", **sizes))
    with pytest.raises(BadInput, match=r"the first token of a .* attends to no other"):
        SentenceEncoder(backbone, "cls_before_pooler", None, 40)


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox", "falcon", "gptj", "phi"])
def test_dropout_is_set_under_the_names_of_other_families(name):
    config = AutoConfig.for_model(name)
    set_dropout(config, 0.3)
    config.num_hidden_layers = 1
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    assert {part.p for part in model.modules() if isinstance(part, torch.nn.Dropout)} == {0.3}


def test_a_dropout_rate_that_nothing_reads_is_refused():
    with pytest.raises(BadInput, match=r"--dropout 0\.3: .* a 'mamba' names no known dropout rate"):
        set_dropout(AutoConfig.for_model("mamba"), 0.3)


def encoder_of(folder, pooling, both_ways):
    config = load_config(folder)
    if both_ways:
        config.is_causal = False
    return SentenceEncoder(load_backbone(folder, config), pooling, None, 64).eval()


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_tokens_attend_to_later_ones_only_if_config_json_says_so(decoder, name, both_ways):
    ids = torch.tensor([[5, 6, 7, 8, 9], [5, 6, 7, 8, 10]])
    encoder = encoder_of(decoder(name), "avg", both_ways)
    states = encoder(ids, torch.ones_like(ids), with_tokens=True).tokens
    changed = (states[0] - states[1]).abs().amax(1) > 1e-4
    assert changed.tolist() == [both_ways] * 4 + [True]


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_the_side_of_the_padding_does_not_matter(decoder, name, both_ways):
    rows = [[5, 6, 7, 8, 9, 11], [12, 13], [14, 15, 16]]
    for pooling in POOLINGS:
        encoder = encoder_of(decoder(name), pooling, both_ways)
        alone, expected = [], []
        for ids in (torch.tensor([row]) for row in rows):
            alone.append(encoder.embed(ids, torch.ones_like(ids)))
            states = encoder.backbone(input_ids=ids).last_hidden_state
            expected.append(states[:, -1] if pooling == "last_token" else states.mean(1))
        alone, expected = torch.cat(alone), torch.cat(expected)
        bound = 1e-4 * float(alone.abs().max())
        assert torch.allclose(alone, expected, atol=bound)
        for left in (False, True):
            pads = [[3] * (6 - len(row)) for row in rows]
            pairs = zip(pads, rows, strict=True)
            ids = torch.tensor([pad + row if left else row + pad for pad, row in pairs])
            vectors = encoder.embed(ids, (ids != 3).long())
            assert torch.allclose(vectors, alone, atol=bound), (pooling, left)


SAVED = [("qwen2", "last_token", True), ("qwen3", "avg", False), ("llama", "avg", True)]
SAVED += [("gemma", "last_token", False), ("gemma3_text", "last_token", True)]


@pytest.mark.parametrize(("name", "pooling", "both_ways"), SAVED)
def test_a_saved_decoder_is_read_by_others(decoder, tmp_path, sentences, name, pooling, both_ways):
    encoder_of(decoder(name), pooling, both_ways).save(str(tmp_path), load_tokenizer(decoder(name)))
    texts = sentences[:12]
    expected = encode_of(tmp_path)(texts)
    assert load_encoder(str(tmp_path))[0].pooling == pooling
    for empty in (["", "a"], [""]):
        assert (encode_of(tmp_path)(empty)[0] == 0).all()
    peer = SentenceTransformer(str(tmp_path), device="cpu")
    scale = np.abs(expected).max()
    for side in ("right", "left"):
        peer.tokenizer.padding_side = side
        for size in (1, 12):  # without padding, and with
            theirs = peer.encode(texts, batch_size=size)
            assert np.allclose(theirs, expected, rtol=0, atol=1e-5 * scale), (side, size)


def test_a_saved_model_that_reads_token_types_gets_none(bert_tokenizer, tmp_path, sentences):
    size = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "initializer_range": 0.3}
    config = AutoConfig.for_model("gpt2", vocab_size=len(bert_tokenizer), **size)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "start")
    bert_tokenizer.save_pretrained(tmp_path / "start")
    encoder, tokenizer = load_encoder(str(tmp_path / "start"), "avg")
    encoder.save(tmp_path / "saved", tokenizer)
    theirs = SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(sentences[:4])
    assert np.allclose(encode_of(tmp_path / "saved")(sentences[:4]), theirs, atol=1e-4)


def test_sg_opt_freezes_the_word_embeddings_of_a_decoder(decoder):
    folder = decoder("qwen2")
    model = build_model("sg_opt", folder, pooling="last_token")
    ids, mask = torch.arange(10, 37).view(1, 3, 9), mask_of([9, 4, 7])[None]
    model(input_ids=ids, attention_mask=mask).loss.backward()
    frozen = [name for name, p in model.encoder.named_parameters() if p.grad is None]
    assert frozen == ["backbone.embed_tokens.weight"]
