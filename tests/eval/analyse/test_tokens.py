"""Frequent tokens left out of the average, against one forward and one plain mean a sentence."""

import numpy as np
import pytest
import torch

from eval.analyse.tokens import TokenAverages, most_frequent
from eval.encode import Encode
from models.encoder import load_encoder
from models.pooling import POOLINGS


@pytest.fixture(params=["tiny_bert", "tiny_roberta"])
def loaded(request):
    return load_encoder(str(request.getfixturevalue(request.param)), "avg_top2")


def averages_of(loaded):
    encoder, tokenizer = loaded
    encode = Encode(encoder, tokenizer)
    return encode, TokenAverages(encode, encoder.backbone, POOLINGS["avg_top2"].pool)


@torch.no_grad()
def by_hand(loaded, sentence, removed):
    """A forward of its own, then the mean of the kept rows of both layers."""
    encoder, tokenizer = loaded
    inputs = tokenizer(sentence, return_tensors="pt")
    states = encoder.backbone.eval()(**inputs, output_hidden_states=True).hidden_states
    both = ((states[-1] + states[-2]) / 2)[0]
    kept = [row for token, row in zip(inputs["input_ids"][0].tolist(), both, strict=True) if token not in removed]
    return (torch.stack(kept).mean(0) if kept else both.mean(0)).numpy()


def test_tokens_are_counted_with_the_special_ones_and_ties_go_by_id():
    assert most_frequent([[2, 9, 7, 3], [2, 9, 3], [2, 8, 3]], 9) == [2, 3, 9, 7, 8]
    assert most_frequent([[2, 9, 7, 3], [2, 9, 3], [2, 8, 3]], 3) == [2, 3, 9]


def test_averages_equal_a_forward_of_their_own(loaded, sentences):
    _, averages = averages_of(loaded)
    some = [*sentences[:25], sentences[3], "the"]
    frequent = most_frequent(averages.ids(some), 20)
    removed = (0, 1, 2, 5, 20)
    found = averages.averages(some, frequent, removed)
    assert found.shape == (27, 5, 32)
    for sentence, rows in zip(some, found, strict=True):
        for count, row in zip(removed, rows, strict=True):
            assert np.allclose(row, by_hand(loaded, sentence, frequent[:count]), atol=1e-5)


def test_nothing_removed_is_the_pooling_itself(loaded, sentences):
    encode, averages = averages_of(loaded)
    found = averages.averages(sentences[:30], [5, 6], (0, 2))
    assert np.allclose(found[:, 0], encode(sentences[:30]), atol=1e-6)


def test_one_forward_serves_every_number_of_tokens(loaded, sentences, monkeypatch):
    encoder, _ = loaded
    seen = []
    encoder.backbone.register_forward_hook(lambda module, args, output: seen.append(output.last_hidden_state.shape[0]))
    _, averages = averages_of(loaded)
    averages.averages(sentences[:30] * 2, [5, 6], (0, 1, 2, 8))
    assert sum(seen) == 30
