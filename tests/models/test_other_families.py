"""Models that are not in the table of families run as the library runs them, or are refused."""

import copy

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer

import run_unsup
from models.encoder import load_encoder
from tests.encoders import encode_of
from tests.refusals import refused

EXPERTS = dict.fromkeys(("num_experts", "num_local_experts"), 4)
EXPERTS |= {"moe_intermediate_size": 16, "num_key_value_heads": 2}
SIZES = {"opt": {"ffn_dim": 64, "word_embed_proj_dim": 32}, "ibert": {"quant_mode": False}}
SIZES |= {"xlm": {"emb_dim": 32, "n_layers": 2, "n_heads": 4}, "mixtral": EXPERTS}
SIZES |= {"esm": {"mask_token_id": 4, "position_embedding_type": "absolute"}}
SIZES |= {"fnet": {}, "convbert": {}}


@pytest.fixture
def make(bert_tokenizer, tmp_path):
    """Writes a tiny model of a family, with BERT's padding index 0."""

    def made(name):
        size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        size |= {"intermediate_size": 64, "max_position_embeddings": 40}
        tokenizer = copy.deepcopy(bert_tokenizer)
        tokenizer.model_max_length = 10**6
        ids = {"vocab_size": len(tokenizer) + 8, "pad_token_id": tokenizer.pad_token_id}
        config = AutoConfig.for_model(name, **size | ids | SIZES[name])
        torch.manual_seed(1)
        AutoModel.from_config(config).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        return str(tmp_path / name)

    return made


WORKING = [name for name in SIZES if name not in ("fnet", "convbert")]


@pytest.mark.parametrize("name", WORKING)
def test_it_trains_and_encodes_texts_of_full_length_as_the_library_does(make, short_run, name):
    folder, texts = make(name), ["a dog", "the river watches a teacher " * 20]
    length = load_encoder(folder, "avg")[0].max_length
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    for text, vector in zip(texts, encode_of(folder, "avg")(texts), strict=True):
        ids = tokenizer(text, truncation=True, max_length=length, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            states = model.eval()(ids, torch.ones_like(ids)).last_hidden_state
        assert np.allclose(vector, states[0].mean(0).numpy(), atol=1e-5)
    run_unsup.main(short_run(folder))


@pytest.mark.parametrize("name", ["fnet", "convbert"])
def test_a_model_that_reads_padding_is_refused(make, name):
    refused(load_encoder, make(name), "avg", match=f"a '{name}' does not mask padding, so a text")
