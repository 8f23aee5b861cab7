"""Frequent tokens left out of the average, against one forward and one plain mean a sentence."""

import numpy as np
import pytest
import torch

from eval.analyse.tokens import AverageWithout, most_frequent
from eval.encode import Encode
from models.encoder import load_encoder
from models.pooling import POOLINGS


@pytest.fixture(params=["tiny_bert", "tiny_roberta"])
def loaded(request):
    return load_encoder(str(request.getfixturevalue(request.param)), "avg_top2")


@torch.no_grad()
def by_hand(loaded, sentence, removed):
    """A forward of its own, then the mean of the kept rows of both layers."""
    encoder, tokenizer = loaded
    inputs = tokenizer(sentence, return_tensors="pt")
    states = encoder.backbone.eval()(**inputs, output_hidden_states=True).hidden_states
    both = ((states[-1] + states[-2]) / 2)[0]
    kept = [token not in removed for token in inputs["input_ids"][0].tolist()]
    return (both[kept] if any(kept) else both).mean(0).numpy()


def test_tokens_are_counted_with_the_special_ones_and_ties_go_by_id():
    assert most_frequent([[2, 9, 7, 3], [2, 9, 3], [2, 8, 3]], 9) == [2, 3, 9, 7, 8]
    assert most_frequent([[2, 9, 7, 3], [2, 9, 3], [2, 8, 3]], 3) == [2, 3, 9]


def test_averages_equal_a_forward_of_their_own(loaded, sentences):
    (encoder, tokenizer), some = loaded, [*sentences[:25], sentences[3], "the"]
    frequent = most_frequent(tokenizer(some)["input_ids"], 20)
    removed, seen = (0, 1, 2, 5, 20), []
    hook = encoder.backbone.register_forward_hook(
        lambda module, args, out: seen.append(len(out.last_hidden_state))
    )
    module = AverageWithout(encoder.backbone, 64, POOLINGS["avg_top2"].pool, frequent, removed)
    averages = Encode(module, tokenizer)(some).reshape(len(some), len(removed), -1)
    hook.remove()
    assert averages.shape == (27, 5, 32) and sum(seen) == 26, "one forward for all numbers"
    for sentence, rows in zip(some, averages, strict=True):
        for count, row in zip(removed, rows, strict=True):
            assert np.allclose(row, by_hand(loaded, sentence, frequent[:count]), atol=1e-5)
    assert np.allclose(averages[:, 0], Encode(*loaded)(some), atol=1e-6), "nothing removed"
