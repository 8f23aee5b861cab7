"""The tokenizer of a backbone, damaged: refused, or it gives sentences that its model can read."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertConfig, BertModel, BertTokenizer

from eval.encode import Encode
from models.encoder import load_encoder
from tests.fuzz.damage import MANY, as_json, result

_PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##a", "##b", "."]
_SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A plain BERT of ten pieces."""
    folder = tmp_path_factory.mktemp("bert")
    config = BertConfig(vocab_size=len(_PIECES), max_position_embeddings=16, **_SIZES)
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    BertTokenizer(vocab={piece: i for i, piece in enumerate(_PIECES)}).save_pretrained(folder)
    return folder


def _vectors(folder):
    encoder, tokenizer = load_encoder(folder, pooling="avg")
    return Encode(encoder, tokenizer)(["ab a.", "unknown \u20ac", "", "b" * 99])


@MANY
@given(st.data())
def test_a_tokenizer_is_refused_or_gives_what_the_model_can_read(saved, tmp_path, data):
    name = data.draw(st.sampled_from(["tokenizer.json", "tokenizer_config.json"]))
    folder = shutil.copytree(saved, tmp_path / "model", dirs_exist_ok=True)
    (folder / name).write_bytes(data.draw(as_json(json.loads((saved / name).read_text()))))
    vectors = result(_vectors, str(folder))
    assert vectors is None or (vectors.shape == (4, 8) and np.isfinite(vectors).all())


def test_the_undamaged_tokenizer_is_read(saved):
    assert _vectors(str(saved)).shape == (4, 8)
