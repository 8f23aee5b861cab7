"""The combination is the sum of its parts, and each part reads its own masked twin."""

import pytest
import torch

from models.objectives import infocse_rtd
from tests.methods import build_model, make_batch

FLAGS = {"aux_weight": 0.5, "rtd_weight": 0.25}


def test_three_terms_add_up_and_each_depends_on_its_own_twin(folder):
    model, mask = build_model("infocse_rtd", folder, **FLAGS), torch.ones(4, 9)
    batch, other = (make_batch("infocse_rtd", folder, mask, chosen) for chosen in (0.4, 0.6))
    base = model(**batch)
    terms = {name: value.item() for name, value in base.terms.items()}
    assert set(terms) == {"contrastive", "aux_mlm", "rtd"} and all(
        value > 0.01 for value in terms.values()
    )
    total = terms["contrastive"] + 0.5 * terms["aux_mlm"] + 0.25 * terms["rtd"]
    assert base.loss.item() == pytest.approx(total, rel=1e-6)
    for changed, prefix in (("aux_mlm", "masked_"), ("rtd", "rtd_")):
        twin = {name: value for name, value in other.items() if name.startswith(prefix)}
        after = model(**batch | twin).terms
        assert {name for name in terms if abs(after[name].item() - terms[name]) > 1e-4} == {changed}


def test_its_twins_are_masked_at_rates_of_their_own():
    args = infocse_rtd.Arguments(mask_rate=0.4, rtd_mask_rate=0.3)
    twins = {m.name: (m.rate, m.views) for m in infocse_rtd.METHOD.masking(args)}
    assert twins == {"masked": (0.4, (0, 1)), "rtd": (0.3, (0, 1))}
