"""The language model's term against the library's own loss, and where its gradient goes."""

import pytest
import torch
from transformers import AutoModelForMaskedLM

from tests.methods import build_model, make_batch, mask_of

LENGTHS = [9, 4, 7, 6]


@pytest.mark.parametrize("packed", [False, True])
def test_the_term_is_the_loss_of_the_library_s_own_language_model(folder, packed):
    model = build_model("simcse_mlm", folder, packed, mlm_weight=0.3)
    batch = make_batch("simcse_mlm", folder, mask_of(LENGTHS))
    out = model(**batch)
    lm = AutoModelForMaskedLM.from_pretrained(folder).eval()
    names = {"input_ids": "masked_input_ids", "attention_mask": "attention_mask", "labels": "masked_labels"}
    expected = lm(**{name: batch[value].flatten(0, 1) for name, value in names.items()}).loss
    assert out.terms["mlm"].item() == pytest.approx(expected.item(), rel=1e-5)
    assert out.loss.item() == pytest.approx(out.terms["contrastive"].item() + 0.3 * expected.item(), rel=1e-5)
    assert out.terms["contrastive"].item() > 0.1


def test_its_gradient_reaches_every_layer_of_the_encoder_and_a_vocabulary_head_of_its_own(tiny_bert):
    found, batch = [], make_batch("simcse_mlm", tiny_bert, mask_of(LENGTHS))
    for weight in (0.0, 1.0):
        model = build_model("simcse_mlm", tiny_bert, mlm_weight=weight)
        model(**batch).loss.backward()
        found.append({name: p.grad for name, p in model.named_parameters()})
    without, with_term = found
    for name, gradient in with_term.items():
        if not name.startswith("projection") and "key.bias" not in name:  # whose gradient is zero but for rounding
            assert (gradient - without[name]).norm() > 1e-6, name
    decoder, embedding = model.objectives[1].output.decoder.weight, model.encoder.backbone.embeddings.word_embeddings
    assert torch.equal(decoder, embedding.weight) and decoder is not embedding.weight, "untied, from the same values"
