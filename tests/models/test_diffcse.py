"""Replaced token detection against a computation sentence by sentence; beside InfoCSE's term."""

import json
import shutil

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForMaskedLM

from common.errors import BadInput
from models.objectives import diffcse, infocse_rtd
from models.objectives.base import Checkpoint
from models.objectives.diffcse import likeliest
from tests.methods import build_model, make_batch, mask_of

LENGTHS = [9, 8, 7, 6, 5]


def test_the_loss_equals_a_computation_sentence_by_sentence(folder):
    model, batch = build_model("diffcse", folder), make_batch("diffcse", folder, mask_of(LENGTHS))
    rtd = model.objectives[1]
    term = model(**batch).terms["rtd"]
    lm = AutoModelForMaskedLM.from_pretrained(folder).eval()
    total = count = replaced_tokens = 0
    for view in range(2):
        for row, length in enumerate(LENGTHS):
            clean, masked = (batch[n][view, row, :length] for n in ("input_ids", "rtd_input_ids"))
            guess = lm(input_ids=masked[None]).logits[0].argmax(-1)
            guess[0] = clean[0]
            vector = model.projection(model.encoder(clean[None], None).pooled)[0]
            target = (guess != clean).long()
            embedded = rtd.discriminator.embeddings(input_ids=guess[None]).clone()
            embedded[0, 0] = vector
            for layer in rtd.discriminator.encoder.layer:
                embedded = layer(embedded, None)
            logits = rtd.head(embedded[0])
            replaced_tokens += int(target.sum())
            total += F.cross_entropy(logits, target, reduction="sum")
            count += length
    assert replaced_tokens > 3
    assert term.item() == pytest.approx((total / count).item(), rel=1e-5)


@pytest.mark.parametrize(("method", "layer"), [("diffcse", "head"), ("nli", "classifier")])
def test_a_new_layer_starts_with_torch_s_own_values(tiny_bert, method, layer):
    """As in the official codes; the model's own initialisation has a spread of 0.3."""
    new = build_model(method, tiny_bert).objectives[-1].get_submodule(layer)
    limit = new.in_features**-0.5
    for drawn in (new.weight, new.bias):
        assert 0 < drawn.abs().max() <= limit
    assert new.weight.std().item() == pytest.approx(limit / 3**0.5, rel=0.15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_of_equally_likely_tokens_the_first_is_chosen(dtype):
    logits = torch.randint(0, 4, (200, 50)).to(dtype)  # every row has ties
    expected = [row.index(max(row)) for row in logits.tolist()]
    assert likeliest(logits).tolist() == expected


def test_a_generator_with_another_vocabulary_is_refused(tiny_bert, tiny_roberta, tmp_path):
    encoder, start = build_model("diffcse", tiny_bert).encoder, Checkpoint(str(tiny_bert), None)
    other = shutil.copytree(tiny_bert, tmp_path / "other")  # as many tokens, two of them swapped
    vocabulary = json.loads((other / "tokenizer.json").read_text())
    words = vocabulary["model"]["vocab"]
    first, second = [*words][-2:]
    words[first], words[second] = words[second], words[first]
    (other / "tokenizer.json").write_text(json.dumps(vocabulary))
    for generator in (tiny_roberta, other):
        with pytest.raises(BadInput, match="needs the vocabulary of"):
            args = diffcse.Arguments(generator=str(generator))
            diffcse.METHOD.build(args, encoder, None, start)


def test_three_terms_add_up_and_each_depends_on_its_own_twin(folder):
    model = build_model("infocse_rtd", folder, aux_weight=0.5, rtd_weight=0.25)
    mask = torch.ones(4, 9)
    batch, other = (make_batch("infocse_rtd", folder, mask, chosen) for chosen in (0.4, 0.6))
    base = model(**batch)
    terms = {name: value.item() for name, value in base.terms.items()}
    assert set(terms) == {"contrastive", "aux_mlm", "rtd"} and min(terms.values()) > 0.01
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
