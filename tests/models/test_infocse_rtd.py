"""The combination is the sum of its parts, and each part reads its own masked twin."""

import pytest
import torch

from models.encoder import SentenceEncoder
from models.heads import projection_named
from models.loading import load_backbone, load_config
from models.objectives import infocse_rtd
from models.training import EncoderForTraining
from training.run import set_dropout


def build(folder):
    args = infocse_rtd.Arguments(
        aux_init="random", skip_from=2, aux_weight=0.5, generator=folder, generator_dropout=False, rtd_weight=0.25
    )
    config = load_config(folder)
    set_dropout(config, 0.0)
    torch.manual_seed(1)
    encoder = SentenceEncoder(load_backbone(folder, config), "cls_before_pooler", None, 64)
    head = projection_named("linear_tanh", config.hidden_size, 0.3)
    return EncoderForTraining(encoder, head, infocse_rtd.METHOD.build(args, encoder, head, folder)).train()


def make_batch(folder, masked, rtd):
    """Sentences with two twins, each of its own seed."""
    ids = torch.randint(10, load_config(folder).vocab_size, (2, 4, 9), generator=torch.Generator().manual_seed(2))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    for name, seed in (("masked", masked), ("rtd", rtd)):
        chosen = torch.rand(ids.shape, generator=torch.Generator().manual_seed(seed)) < 0.4
        chosen[..., 0] = False
        batch[f"{name}_input_ids"], batch[f"{name}_labels"] = torch.where(chosen, 7, ids), ids.where(chosen, -100)
    return batch


@pytest.mark.parametrize("tiny", ["tiny_bert", "tiny_roberta"])
def test_three_terms_add_up_and_each_depends_on_its_own_twin(request, tiny):
    folder = str(request.getfixturevalue(tiny))
    model = build(folder)
    base = model(**make_batch(folder, 3, 4))
    terms = {name: value.item() for name, value in base.terms.items()}
    assert set(terms) == {"contrastive", "aux_mlm", "rtd"} and all(value > 0.01 for value in terms.values())
    assert base.loss.item() == pytest.approx(
        terms["contrastive"] + 0.5 * terms["aux_mlm"] + 0.25 * terms["rtd"], rel=1e-6
    )
    for changed, seeds in (("aux_mlm", (8, 4)), ("rtd", (3, 8))):
        other = model(**make_batch(folder, *seeds)).terms
        moved = {name for name in terms if abs(other[name].item() - terms[name]) > 1e-4}
        assert moved == {changed}


def test_its_twins_are_masked_at_rates_of_their_own():
    args = infocse_rtd.Arguments(mask_rate=0.4, rtd_mask_rate=0.3)
    assert {m.name: (m.rate, m.views) for m in infocse_rtd.METHOD.masking(args)} == {
        "masked": (0.4, (0, 1)), "rtd": (0.3, (0, 1)),
    }  # fmt: skip
