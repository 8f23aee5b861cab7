"""The language model's term against the library's own loss, and where its gradient goes."""

import pytest
import torch
from transformers import AutoModelForMaskedLM

from models.encoder import SentenceEncoder
from models.heads import projection_named
from models.loading import load_backbone, load_config
from models.objectives import simcse_mlm
from models.training import EncoderForTraining
from training.run import set_dropout


def build(folder, method, args, packed=False):
    config = load_config(folder)
    set_dropout(config, 0.0)
    torch.manual_seed(1)
    encoder = SentenceEncoder(load_backbone(folder, config), "cls_before_pooler", None, 64, packed)
    head = projection_named("linear_tanh", config.hidden_size, 0.3)
    return EncoderForTraining(encoder, head, method.METHOD.build(args, encoder, head, folder)).train()


def make_batch(folder):
    config = load_config(folder)
    generator = torch.Generator().manual_seed(2)
    mask = (torch.arange(9) < torch.tensor([9, 4, 7, 6])[:, None]).long().expand(2, -1, -1).contiguous()
    ids = torch.randint(10, config.vocab_size, mask.shape, generator=generator)
    ids = ids.masked_fill(mask == 0, config.pad_token_id)
    chosen = (torch.rand(ids.shape, generator=generator) < 0.4) & (mask == 1)
    chosen[..., 0] = False
    masked, labels = torch.where(chosen, 7, ids), torch.where(chosen, ids, -100)
    return {"input_ids": ids, "attention_mask": mask, "masked_input_ids": masked, "masked_labels": labels}


@pytest.mark.parametrize("tiny", ["tiny_bert", "tiny_roberta"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_term_is_the_loss_of_the_library_s_own_language_model(request, tiny, packed):
    folder = str(request.getfixturevalue(tiny))
    model, batch = build(folder, simcse_mlm, simcse_mlm.Arguments(mlm_weight=0.3), packed), make_batch(folder)
    out = model(**batch)
    lm = AutoModelForMaskedLM.from_pretrained(folder).eval()
    names = {"input_ids": "masked_input_ids", "attention_mask": "attention_mask", "labels": "masked_labels"}
    expected = lm(**{name: batch[value].flatten(0, 1) for name, value in names.items()}).loss
    assert out.terms["mlm"].item() == pytest.approx(expected.item(), rel=1e-5)
    assert out.loss.item() == pytest.approx(out.terms["contrastive"].item() + 0.3 * expected.item(), rel=1e-5)
    assert out.terms["contrastive"].item() > 0.1


def test_its_gradient_reaches_every_layer_of_the_encoder_and_a_vocabulary_head_of_its_own(tiny_bert):
    folder, found = str(tiny_bert), []
    for weight in (0.0, 1.0):
        model = build(folder, simcse_mlm, simcse_mlm.Arguments(mlm_weight=weight))
        model(**make_batch(folder)).loss.backward()
        found.append({name: p.grad for name, p in model.named_parameters()})
    without, with_term = found
    for name, gradient in with_term.items():
        if not name.startswith("projection") and "key.bias" not in name:  # whose gradient is zero but for rounding
            assert (gradient - without[name]).norm() > 1e-6, name
    decoder, embedding = model.objectives[1].output.decoder.weight, model.encoder.backbone.embeddings.word_embeddings
    assert torch.equal(decoder, embedding.weight) and decoder is not embedding.weight, "untied, from the same values"
