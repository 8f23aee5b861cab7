"""Steps that are captured, and those that are not; what a capture does runs on a GPU only."""

import torch

from models import fast
from tests.methods import build_model, make_batch, mask_of
from training import graph
from training.graph import GraphedStep


def test_only_the_first_shapes_are_captured_and_the_others_are_computed(tiny_bert, monkeypatch):
    monkeypatch.setattr(graph, "_MOST", 1)
    model = build_model("simcse", tiny_bert, packed=False)
    step = GraphedStep(model.train(False), lambda: torch.autocast("cpu", enabled=False))
    for lengths in ([9, 4], [7, 3, 5], [6, 2], [9, 4]):
        batch = make_batch("simcse", tiny_bert, mask_of(lengths))
        taken = step(batch, fast.shares_of(batch))
        gradients = [parameter.grad for parameter in step.trained]
        assert len(step.captured) == 1
        loss = model(**batch).loss
        expected = torch.autograd.grad(loss, step.trained, allow_unused=True)
        torch.testing.assert_close(taken.loss, loss.detach())
        for ours, theirs in zip(gradients, expected, strict=True):
            torch.testing.assert_close(ours, theirs)
