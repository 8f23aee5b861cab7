"""The table of families: a backbone's parts, with padding or without it, are the whole model."""

import pytest
import torch
from transformers import AutoConfig

from common.errors import BadInput
from models import fast
from models.auxiliary import LowerLayers, load_masked_lm
from models.encoder import SentenceEncoder
from models.families import FAMILIES, check_apart, output_of, packs
from models.loading import load_backbone
from models.perturb import UNCHANGED
from tests.methods import mask_of
from tests.sources import ROOT

WITH_HEAD = [name for name, family in FAMILIES.items() if family.transform]
WHOLE = ["mpnet", "modernbert", "deberta-v2"]
APART = [name for name in WITH_HEAD if name not in WHOLE]
RUN = [(name, False) for name in WITH_HEAD] + [(name, True) for name in APART]


@pytest.mark.parametrize(("name", "packed"), RUN)
def test_parts_composed_equal_the_whole_model(tiny, name, packed):
    """Logits at some tokens, the gradient of every weight and the states within, in float64."""
    whole, lm = (load_masked_lm(str(tiny(name))).double().eval() for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    mask = mask_of([21, 2, 7, 1, 12])
    ids = torch.randint(10, 90, mask.shape, generator=generator)
    ids = ids.where(mask == 1, lm.config.pad_token_id)
    chosen = (torch.rand(mask.shape, generator=generator) < 0.4) & (mask == 1)
    given = whole(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    expected = given.logits[chosen]

    fast.choose(lm, packed)
    tokens, labels = fast.tokens_of(lm.config, mask), ids.masked_fill(~chosen, -100)
    transform, decoder = output_of(lm)
    states = tokens.encode(lm.base_model, ids, UNCHANGED).labelled(labels)
    logits = decoder(transform(at_labels(states)))
    assert torch.allclose(logits, expected, atol=1e-10)
    assert expected.std() > 0.1
    for made in (logits, expected):
        made.square().sum().backward()
    for (key, ours), theirs in zip(lm.named_parameters(), whole.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None), key
        if ours.grad is not None:
            assert torch.allclose(ours.grad, theirs.grad, rtol=1e-8, atol=1e-8), key
    if name in APART:
        lower = LowerLayers(lm.base_model, 2).eval()(ids, mask).labelled(labels)
        assert torch.allclose(at_labels(lower), given.hidden_states[2][chosen], atol=1e-10)


def at_labels(read):
    """The states at the labels alone."""
    return read.states.flatten(0, -2)[read.labels != -100]


@pytest.mark.parametrize("name", [*WHOLE, "fnet"])
def test_a_family_that_is_called_as_a_whole_is_refused_by_name_with_the_reason(name):
    with pytest.raises(BadInput, match=rf"\), not '{name}': \w+.*; purely contrastive methods"):
        check_apart(AutoConfig.for_model(name), "the auxiliary network")


def test_families_that_cannot_run_packed_run_padded_and_log_it(tiny, caplog):
    backbone = load_backbone(str(tiny("mpnet")))
    with caplog.at_level("INFO"):
        assert SentenceEncoder(backbone, "avg", packed=True).packed is False
    assert "mpnet: runs padded; packing supports bert, " in caplog.text
    decoder = AutoConfig.for_model("bert", is_decoder=True)
    assert not packs(decoder), "packed attention looks both ways"


def test_the_families_page_matches_the_table():
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    said = {}
    for line in page[page.index("| family |") :].splitlines()[2:]:
        if line.startswith("|"):
            name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            said[name] = [cell == "yes" for cell in cells]
    assert said.pop("any other") == [False] * 3
    assert {*APART, *WHOLE} == said.keys()
    for name, cells in said.items():
        family, apart = FAMILIES[name], name in APART
        assert cells == [bool(family.transform), apart, apart and family.like_bert]
        assert packs(AutoConfig.for_model(name)) == apart
