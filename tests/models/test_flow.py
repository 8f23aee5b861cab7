"""The flow: exact determinant, a density, saved whole or refused."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from common.errors import BadInput
from eval.encode import Encode
from models.encoder import load_encoder
from models.flow import Flow
from models.heads import Head


def made(width=5, seed=0):
    """A flow with every weight moved away from its start, so that no coupling is the identity."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        flow = Flow(width, steps=3, hidden=8)
        with torch.no_grad():
            for parameter in flow.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return flow


@pytest.fixture
def vectors():
    return torch.randn(6, 5, generator=torch.Generator().manual_seed(1)) * 3 + 2


@pytest.mark.parametrize("width", [2, 5])
def test_the_log_determinant_is_that_of_the_jacobian(width, vectors):
    flow, vectors = made(width).double(), vectors[:, :width].double()
    _, log_det = flow.transform(vectors)
    for row in vectors:
        jacobian = torch.autograd.functional.jacobian(lambda vector: flow(vector[None])[0], row)
        assert torch.linalg.slogdet(jacobian)[1] == pytest.approx(
            float(log_det.detach()), abs=1e-10
        )


def test_the_likelihood_is_a_density():
    """Its integral over the plane is one."""
    line = torch.linspace(-14, 14, 561, dtype=torch.float64)
    plane = torch.cartesian_prod(line, line)
    with torch.no_grad():
        density = made(2).double().log_likelihood(plane).exp()
    assert float(density.sum()) * float(line[1] - line[0]) ** 2 == pytest.approx(1, abs=1e-3)


def test_act_norm_starts_with_mean_zero_and_variance_one(vectors):
    flow = made()
    flow.initialise(vectors)
    first = flow.steps[0]
    normed = (vectors + first.bias) * first.log_scale.exp()
    assert normed.mean(0).abs().max() < 1e-6
    assert (normed.std(0, correction=0) - 1).abs().max() < 1e-5


@pytest.fixture
def saved(tiny_bert, tmp_path):
    encoder, tokenizer = load_encoder(str(tiny_bert), "avg")
    encoder.head = Head(made(32))
    encoder.save(str(tmp_path / "model"), tokenizer)
    return encoder, tokenizer, tmp_path / "model"


def test_a_saved_flow_is_applied_again(saved, sentences):
    encoder, tokenizer, folder = saved
    again, _ = load_encoder(str(folder))
    plain, _ = load_encoder(str(folder), "avg")

    def vectors(model):
        return Encode(model, tokenizer)(sentences[:10])

    assert np.array_equal(vectors(again), vectors(encoder))
    with torch.no_grad():
        by_hand = encoder.head.flow(torch.from_numpy(vectors(plain)))
    assert np.abs(by_hand.numpy() - vectors(again)).max() < 1e-4
    assert not (folder / "modules.json").exists()


def test_a_flow_that_is_missing_or_another_is_refused(saved):
    folder = saved[2]
    file = folder / "flow.safetensors"
    weights = load_file(file)
    weights.pop("steps.1.bias")
    save_file(weights, file)
    with pytest.raises(
        BadInput, match=r"flow\.safetensors does not match its config.json.*steps.1.bias"
    ):
        load_encoder(str(folder))
    file.unlink()
    with pytest.raises(BadInput, match=r"flow\.safetensors does not match"):
        load_encoder(str(folder))
    config = json.loads((folder / "config.json").read_text())
    assert config["sentence_embedding"]["flow"] == {"width": 32, "steps": 3, "hidden": 8}
