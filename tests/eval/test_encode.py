import random

import numpy as np
import pytest
import torch
from torch import nn

import eval.encode
from common.errors import NonFinite
from eval.encode import Encode, device_here
from models.encoder import SentenceEncoder
from models.heads import Head, Normalize
from models.loading import load_backbone, load_config, load_tokenizer
from tests.refusals import refused


class Toy(nn.Module):
    """Mean of the embeddings of the real tokens, with dropout; remembers the shapes it saw."""

    def __init__(self, vocabulary, width=8):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.table = nn.Embedding(vocabulary, width)
        self.drop = nn.Dropout(0.5)
        self.shapes, self.max_length = [], 64

    def embed(self, input_ids, attention_mask):
        self.shapes.append(tuple(input_ids.shape))
        weights = attention_mask[:, :, None].float()
        return (self.drop(self.table(input_ids)) * weights).sum(1) / weights.sum(1)


@pytest.fixture
def toy(bert_tokenizer):
    return Toy(len(bert_tokenizer))


@pytest.mark.parametrize(
    ("family", "longest", "tokens"),
    [("bert", 64, 1), ("bert", 7, 50), ("roberta", 64, 400), ("roberta", 7, 10**6)],
)
def test_rows_are_in_the_sentences_order(request, family, longest, tokens, sentences, monkeypatch):
    monkeypatch.setattr(eval.encode, "TOKENS_PER_BATCH", tokens)
    tokenizer = request.getfixturevalue(f"{family}_tokenizer")
    toy = Toy(len(tokenizer))
    toy.max_length = longest
    shuffled = random.Random(0).choices(sentences[:100], k=150)
    vectors = Encode(toy, tokenizer)(shuffled)
    assert (vectors.shape, vectors.dtype) == ((150, 8), np.float32)
    for sentence, vector in zip(shuffled, vectors, strict=True):
        ids = tokenizer(sentence, truncation=True, max_length=longest)["input_ids"]
        assert np.allclose(vector, toy.table.weight.detach()[ids].mean(0), atol=1e-5)
        assert np.array_equal(vector, vectors[shuffled.index(sentence)])
    assert all(rows == 1 or rows * length <= tokens for rows, length in toy.shapes)
    assert sum(rows for rows, _ in toy.shapes) == len({*shuffled}), "each once"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(toy, bert_tokenizer, sentences, value):
    toy.train()
    token = bert_tokenizer(sentences[9])["input_ids"][1]
    toy.table.weight.data[token, 3] = value
    assert "not finite" in refused(Encode(toy, bert_tokenizer), sentences[:10], error=NonFinite)
    assert toy.training


def test_the_identity_covers_everything_that_decides_a_vector(tiny_bert, tiny_roberta):
    def encode(folder=tiny_bert, head=None, pooling="avg", change=0, **settings):
        config = load_config(str(folder))
        for name, value in settings.items():
            setattr(config, name, value)
        encoder = SentenceEncoder(load_backbone(str(folder), config), pooling, head, 64)
        next(encoder.parameters()).data += change
        return Encode(encoder, load_tokenizer(str(folder)))

    changes = [{"head": Head(Normalize())}, {"pooling": "cls_before_pooler"}, {"change": 1}]
    changes += [{"hidden_act": "relu"}, {"num_attention_heads": 1}, {"folder": tiny_roberta}]
    others = [encode(**change) for change in changes]
    others += [encode(), encode()]
    others[-1].bf16, others[-2].tokenizer.truncation_side = True, "left"
    used = encode()
    used(["some words", "others"])
    assert used.identity == encode().identity
    assert len({encode().identity, *(other.identity for other in others)}) == 9


@pytest.mark.parametrize(
    ("gpus", "local", "device"),
    [(0, "1", "cpu"), (1, "1", "cuda"), (4, None, "cuda"), (4, "3", "cuda:3")],
)
def test_a_process_of_a_launcher_has_its_own_gpu(gpus, local, device, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpus > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if local:
        monkeypatch.setenv("LOCAL_RANK", local)
    assert device_here() == device
