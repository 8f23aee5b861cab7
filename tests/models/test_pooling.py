"""Poolings by hand, on states that are small integers."""

import pytest
import torch

from models.pooling import POOLINGS

# Embedding output and three layers; one sentence of two tokens and one padding position, width 2.
STATES = [
    torch.tensor([[[1.0, 2.0], [3.0, 4.0], [99.0, 99.0]]]),
    torch.tensor([[[10.0, 20.0], [30.0, 40.0], [99.0, 99.0]]]),
    torch.tensor([[[20.0, 40.0], [60.0, 80.0], [99.0, 99.0]]]),
    torch.tensor([[[100.0, 200.0], [300.0, 400.0], [99.0, 99.0]]]),
]
MASK = torch.tensor([[1, 1, 0]])
EXPECTED = {
    "cls": [100.0, 200.0],
    "cls_before_pooler": [100.0, 200.0],
    "last_token": [300.0, 400.0],
    "avg": [200.0, 300.0],
    "avg_top2": [120.0, 180.0],  # mean of (40, 60) and (200, 300)
    "avg_first_last": [110.0, 165.0],  # first transformer layer (20, 30) and last
    "avg_embedding_last": [101.0, 151.5],  # embedding layer (2, 3) and last
    "mask": [300.0, 400.0],
}


@pytest.mark.parametrize("name", POOLINGS)
def test_pooling_equals_the_hand_computation(name):
    for index in (1, -1):  # of the mask, the same token here
        assert POOLINGS[name].pool(STATES, MASK, index).tolist() == [EXPECTED[name]]
