import json
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from data.sampler import KeyedSampler
from training.faults import FirstBad, NonFiniteStep, not_finite
from training.trainer import EmbeddingTrainer


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_the_first_bad_step_is_kept_until_somebody_looks(value):
    first = FirstBad(torch.device("cpu"))
    for step, number in enumerate([1.0, 2.0, value, 4.0, value], start=1):
        first.note(step, [torch.tensor(0.5), torch.tensor(number)])
    assert first.step == 3
    fine = FirstBad(torch.device("cpu"))
    fine.note(1, [torch.tensor(1e30), torch.tensor(3.0, dtype=torch.bfloat16)])
    assert fine.step == 0


def test_weights_and_optimizer_state_are_looked_at():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    assert not_finite(model, optimizer) is None
    for tensor, name in ((model[0].bias, "0.bias"), (model[1].running_var, "1.running_var")):
        kept = tensor.detach().clone()
        tensor.data[0] = float("inf")
        assert not_finite(model) == name
        tensor.data.copy_(kept)
    optimizer.state[model[0].weight]["exp_avg_sq"][0, 0] = float("nan")
    assert not_finite(model, optimizer) == "exp_avg_sq of optimizer state 0"


def test_what_is_found_is_said_in_a_line_and_kept_in_a_file(tmp_path):
    found = NonFiniteStep(7, float("nan"), {"contrastive": 1.5, "aux_mlm": float("inf")}, list(range(64)))
    assert "step 7: aux_mlm inf; examples 0, 1," in found.message()
    assert "\n" not in found.message()
    assert "gradient norm nan" in found._replace(terms={"contrastive": 1.5}).message()
    found.write(tmp_path)
    kept = json.loads((tmp_path / "nonfinite.json").read_text())
    assert kept["examples"] == list(range(64))
    assert kept["terms"] == {"contrastive": "1.5", "aux_mlm": "inf"}


@pytest.mark.parametrize("accumulated", [1, 2, 3])
def test_the_examples_of_a_step_are_those_the_sampler_gave(accumulated):
    """23 examples in batches of 4: 5 whole batches an epoch, the last update of an epoch may be smaller."""
    sampler = KeyedSampler(3, 23, 4)
    args = SimpleNamespace(gradient_accumulation_steps=accumulated)
    trainer = SimpleNamespace(args=args, sampler=sampler)
    step = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        given = [index for _, index, _ in sampler]
        batches = [given[i : i + 4] for i in range(0, 20, 4)]
        for first in range(0, 5, accumulated):
            step += 1
            expected = [index for batch in batches[first : first + accumulated] for index in batch]
            assert EmbeddingTrainer.examples_of(trainer, step) == expected
