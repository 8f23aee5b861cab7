"""Stage 1's options against the equations, one sentence at a time, without padding."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from data.views import IGNORED
from models.auxiliary import load_masked_lm, new_head
from models.families import output_of
from models.masked_lm import AuxiliaryMaskedLM
from tests.methods import stage_one_batch

LENGTHS = [9, 4, 7]
PLAIN = ("input_ids", "attention_mask", "masked_input_ids", "masked_labels")
OWN = ("aux_input_ids", "aux_labels")
# Whether the head's [CLS] is clean, and what a batch has besides.
OPTIONS = {"published": (False, ()), "clean [CLS]": (True, ()), "own masks": (False, OWN)}
OPTIONS |= {"words": (False, ("words",)), "all": (True, (*OWN, "words"))}


@pytest.fixture
def lm(folder):
    return load_masked_lm(folder)


@pytest.fixture
def batch(folder):
    clean, aux = (stage_one_batch(folder, LENGTHS, share) for share in (0.4, 0.7))
    words = torch.full_like(clean["input_ids"], IGNORED)
    words[..., 1:3] = clean["input_ids"][..., 1:3]
    own = {"aux_input_ids": aux["masked_input_ids"], "aux_labels": aux["masked_labels"]}
    return clean | own | {"words": words}


def model_of(lm, packed, layers=2, skip_from=1, bow_weight=0.3, clean=False):
    torch.manual_seed(1)
    head = new_head(lm.base_model, layers) if layers else torch.nn.ModuleList()
    return AuxiliaryMaskedLM(lm, head, skip_from, packed, bow_weight, clean).eval()


def slow(model, batch):
    """Loss name -> the losses of its targets."""
    lm, losses = model.lm, {}
    transform, decoder = output_of(lm)

    def add(name, states, labels):
        logits = decoder(transform(states[labels != IGNORED]))
        made = F.cross_entropy(logits, labels[labels != IGNORED], reduction="none")
        losses.setdefault(name, []).extend(made.tolist())

    for row, length in enumerate(LENGTHS):
        part = {name: value[0, row : row + 1, :length] for name, value in batch.items()}
        states = {}
        for name in (name for name in part if name.endswith("input_ids")):
            states[name] = lm(part[name], output_hidden_states=True).hidden_states
        cls = states["input_ids" if model.clean_cls else "masked_input_ids"][-1][0, 0]
        add("mlm", states["masked_input_ids"][-1][0], part["masked_labels"][0])
        head = states.get("aux_input_ids", states["masked_input_ids"])[model.skip_from].clone()
        head[0, 0] = cls
        for layer in model.c_head:
            head = layer(head)
        add("aux_mlm", head[0], part.get("aux_labels", part["masked_labels"])[0])
        if "words" in part:
            add("bow", cls.expand(length, -1), part["words"][0])
    return losses


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("skip_from", [0, 1])
@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_equals_the_slow_computation(lm, batch, option, skip_from, packed):
    clean, besides = OPTIONS[option]
    model = model_of(lm, packed, skip_from=skip_from, clean=clean)
    batch = {name: batch[name] for name in (*PLAIN, *besides)}
    with torch.no_grad():
        out, expected = model(**batch), slow(model, batch)
    assert out.terms.keys() == expected.keys()
    loss = 0.0
    for name, losses in expected.items():
        assert out.terms[name].item() == pytest.approx(np.mean(losses), rel=1e-4)
        loss += np.mean(losses) * (0.3 if name == "bow" else 1.0)
    assert out.loss.item() == pytest.approx(loss, rel=1e-4)
    assert model.count_targets(batch).tolist() == [*map(len, expected.values())]


@pytest.mark.parametrize("packed", [False, True])
def test_without_head_layers_it_is_the_plain_masked_language_model(lm, batch, packed):
    model = model_of(lm, packed, layers=0)
    batch = {name: batch[name] for name in PLAIN}
    _, mask, ids, labels = (value[0] for value in batch.values())
    with torch.no_grad():
        theirs, out = lm(ids, mask, labels=labels).loss, model(**batch)
    assert out.loss.item() == pytest.approx(theirs.item(), rel=1e-4)
    assert out.terms.keys() == {"mlm"}
    assert model.probe(**batch).keys() == {"mlm"}


@pytest.mark.parametrize("packed", [False, True])
def test_gradient_reaches_the_encoder_through_the_clean_cls_alone(lm, batch, packed):
    """Over the embeddings and with a clean [CLS], the loss trains every layer."""
    model = model_of(lm, packed, skip_from=0, clean=True)
    batch = {name: batch[name] for name in (*PLAIN, *OWN)}
    batch["masked_labels"].fill_(IGNORED)
    model(**batch).loss.backward()
    for layer in lm.base_model.encoder.layer:
        assert sum(p.grad.norm() for p in layer.parameters()) > 0


def test_the_probe_gives_every_row_the_cls_of_another(lm, batch):
    model = model_of(lm, True, clean=True)
    # Equal lengths, so that rows can change places.
    batch = {name: batch[name][:, :, :4] for name in PLAIN}
    other = model.probe(**batch | {"input_ids": batch["input_ids"].roll(1, 1)})
    shuffled = model.probe(**batch)["aux_mlm_shuffled_cls"]
    assert shuffled == pytest.approx(other["aux_mlm"], rel=1e-5)
