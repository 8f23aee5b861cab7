"""Replaced token detection against a computation sentence by sentence."""

import json
import shutil

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForMaskedLM

from common.errors import BadInput
from models.fast import is_packed
from models.objectives import diffcse
from models.objectives.base import Batch, Checkpoint
from models.objectives.diffcse import likeliest
from tests.methods import build_model, make_batch, mask_of

LENGTHS = [9, 8, 7, 6, 5]


def built(folder, packed=False, **options):
    """The model, its objective, and a batch, as the model makes it and as a dictionary."""
    batch = make_batch("diffcse", folder, mask_of(LENGTHS), **options)
    model = build_model("diffcse", folder, packed, **options)
    return model, model.objectives[1], Batch.of(**batch), batch


@pytest.mark.parametrize("pad_as_negative", [False, True])
def test_the_loss_equals_a_computation_sentence_by_sentence(folder, pad_as_negative):
    model, rtd, _, batch = built(folder)
    rtd.pad_as_negative = pad_as_negative
    term = model(**batch).terms["rtd"]
    lm = AutoModelForMaskedLM.from_pretrained(folder).eval()
    total = count = replaced_tokens = 0
    for view in range(2):
        for row, length in enumerate([9] * 5 if pad_as_negative else LENGTHS):
            clean, masked = (batch[n][view, row, :length] for n in ("input_ids", "rtd_input_ids"))
            real = batch["attention_mask"][view, row, :length]
            guess = lm(input_ids=masked[None], attention_mask=real[None]).logits[0].argmax(-1)
            for i in range(length):
                if i == 0 or real[i] == 0:
                    guess[i] = clean[i]
            vector = model.projection(model.encoder(clean[None], real[None]).pooled)[0]
            target = (guess != clean).long()
            guess[real == 0] = 0  # what the published code shows the discriminator for padding
            embedded = rtd.discriminator.embeddings(input_ids=guess[None]).clone()
            embedded[0, 0] = vector
            bias = (1.0 - real[None, None, None].float()) * -1e9
            for layer in rtd.discriminator.encoder.layer:
                embedded = layer(embedded, bias)
            logits = rtd.head(embedded[0])
            replaced_tokens += int(target.sum())
            total += F.cross_entropy(logits, target, reduction="sum")
            count += length
    assert replaced_tokens > 3
    assert term.item() == pytest.approx((total / count).item(), rel=1e-5)


def test_the_new_layer_starts_with_torch_s_own_values(tiny_bert):
    """The official code adds it after the model's own initialisation."""
    rtd = built(tiny_bert)[1]
    limit = rtd.head.in_features**-0.5
    for drawn in (rtd.head.weight, rtd.head.bias):
        assert 0 < drawn.abs().max() <= limit
    assert rtd.head.weight.std().item() == pytest.approx(limit / 3**0.5, rel=0.15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_of_equally_likely_tokens_the_first_is_chosen(dtype):
    logits = torch.randint(0, 4, (200, 50)).to(dtype)  # every row has ties
    expected = [row.index(max(row)) for row in logits.tolist()]
    assert likeliest(logits).tolist() == expected


def test_a_packed_generator_writes_the_same_tokens(folder):
    (_, padded, batch, _), (_, packed, *_) = (built(folder, packed) for packed in (False, True))
    assert [is_packed(rtd.generator.config) for rtd in (padded, packed)] == [False, True]
    written = padded.rewrite(batch)
    assert torch.equal(packed.rewrite(batch), written)
    assert (written != batch.input_ids.flatten(0, 1)).float().mean() > 0.3


def test_a_generator_with_another_vocabulary_is_refused(tiny_bert, tiny_roberta, tmp_path):
    encoder = built(tiny_bert)[0].encoder
    other = shutil.copytree(tiny_bert, tmp_path / "other")  # as many tokens, two of them swapped
    vocabulary = json.loads((other / "tokenizer.json").read_text())
    words = vocabulary["model"]["vocab"]
    first, second = [*words][-2:]
    words[first], words[second] = words[second], words[first]
    (other / "tokenizer.json").write_text(json.dumps(vocabulary))
    for generator in (tiny_roberta, other):
        with pytest.raises(BadInput, match="needs the vocabulary of"):
            diffcse.METHOD.build(
                diffcse.Arguments(generator=str(generator)),
                encoder,
                None,
                Checkpoint(str(tiny_bert), None),
            )
