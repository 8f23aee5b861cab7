"""Replaced token detection against a computation sentence by sentence."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForMaskedLM

from models.encoder import SentenceEncoder
from models.heads import projection_named
from models.loading import load_backbone, load_config
from models.objectives import diffcse
from models.objectives.diffcse import chosen, sampled
from models.packed import Packed
from models.runner import Runner
from models.training import EncoderForTraining
from training.run import set_dropout

ROWS, LENGTH = 5, 9


def make_batch(config, uniforms=False):
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(10, config.vocab_size, (2, ROWS, LENGTH), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(1, ROWS):
        mask[:, row, LENGTH - row :] = 0
    ids = ids.masked_fill(mask == 0, config.pad_token_id)
    chosen = (torch.rand(ids.shape, generator=generator) < 0.4) & (mask == 1)
    chosen[..., 0] = False
    batch = {"input_ids": ids, "attention_mask": mask, "rtd_input_ids": torch.where(chosen, 5, ids),
             "rtd_labels": torch.where(chosen, ids, -100)}  # fmt: skip
    return batch | ({"rtd_uniforms": torch.rand(ids.shape, generator=generator)} if uniforms else {})


def build(folder, packed=False, **options):
    args = diffcse.Arguments(generator=str(folder), generator_dropout=False, rtd_weight=1.0, **options)
    config = load_config(str(folder))
    set_dropout(config, 0.0)
    torch.manual_seed(2)
    encoder = SentenceEncoder(load_backbone(str(folder), config), "cls_before_pooler", None, 64, packed)
    projection = projection_named("linear_tanh", config.hidden_size, 0.3)
    objectives = diffcse.METHOD.build(args, encoder, projection, str(folder))
    model = EncoderForTraining(encoder, projection, objectives).train()
    return model, model.objectives[1]


@pytest.mark.parametrize("tiny", ["tiny_bert", "tiny_roberta"])
@pytest.mark.parametrize("pad_as_negative", [False, True])
@pytest.mark.parametrize("positions", ["all", "masked"])
def test_the_loss_equals_a_computation_sentence_by_sentence(request, tiny, pad_as_negative, positions):
    folder = request.getfixturevalue(tiny)
    model, rtd = build(folder, pad_as_negative=pad_as_negative, rtd_positions=positions)
    batch = make_batch(model.config)
    found = model(**batch).terms["rtd"]
    lm = AutoModelForMaskedLM.from_pretrained(folder).eval()
    total = count = replaced_tokens = 0
    for view in range(2):
        for row in range(ROWS):
            length = LENGTH if pad_as_negative else int(batch["attention_mask"][view, row].sum())
            clean, masked, labels = (batch[n][view, row, :length] for n in ("input_ids", "rtd_input_ids", "rtd_labels"))
            real = batch["attention_mask"][view, row, :length]
            guess = lm(input_ids=masked[None], attention_mask=real[None]).logits[0].argmax(-1)
            for i in range(length):
                if i == 0 or real[i] == 0 or (positions == "masked" and labels[i] == -100):
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
    assert found.item() == pytest.approx((total / count).item(), rel=1e-5)


def test_the_new_layer_starts_with_torch_s_own_values(tiny_bert):
    """The official code adds it behind the model's own initialisation, which would draw with a spread of 0.3 here."""
    _, rtd = build(tiny_bert)
    limit = rtd.head.in_features**-0.5
    for drawn in (rtd.head.weight, rtd.head.bias):
        assert 0 < drawn.abs().max() <= limit
    assert rtd.head.weight.std().item() == pytest.approx(limit / 3**0.5, rel=0.15)


def test_gradient_reaches_the_encoder_through_the_vector_alone_and_never_the_generator(tiny_bert):
    model, rtd = build(tiny_bert)
    rtd(*parts(model, make_batch(model.config)))["rtd"].value.backward()
    assert all(p.grad is None for p in rtd.generator.parameters())
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for n, p in model.encoder.backbone.named_parameters()
               if "layer.3" in n and "key.bias" not in n)  # fmt: skip
    assert rtd.head.weight.grad.abs().sum() > 0


def parts(model, batch):
    from models.objectives.base import Batch

    made = Batch.of(**batch)
    encoded = model.encode(made)
    model.project(encoded, made)
    return encoded, made


def test_sampling_follows_the_distribution_and_the_numbers_alone():
    logits = torch.tensor([[0.0, 1.0, -2.0, 3.0]])
    uniform = (torch.arange(10000) + 0.5) / 10000
    drawn = sampled(logits.expand(10000, 4), uniform)
    share = torch.bincount(drawn, minlength=4) / 10000
    torch.testing.assert_close(share, logits.softmax(-1)[0], atol=2e-4, rtol=0)
    assert torch.equal(drawn, sampled(logits.expand(10000, 4), uniform))
    for last in (0.9999999, 1.0):  # a number just below 1 in float64 is 1 in float32
        assert sampled(logits, torch.tensor([last])).item() == 3


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_of_equally_likely_tokens_the_first_is_chosen(kind):
    logits = torch.randint(0, 4, (200, 50)).to(kind)  # every row has ties
    expected = [row.index(max(row)) for row in logits.tolist()]
    assert chosen(logits, None).tolist() == expected


def test_a_sampled_rewrite_differs_from_the_likeliest_and_repeats(tiny_bert):
    from models.objectives.base import Batch

    model, rtd = build(tiny_bert, rtd_tokens="sample")
    batch = make_batch(model.config, uniforms=True)
    one, again = (rtd.rewrite(Batch.of(**batch)) for _ in range(2))
    assert torch.equal(one, again)
    likeliest = rtd.rewrite(Batch.of(**{n: v for n, v in batch.items() if n != "rtd_uniforms"}))
    assert (one != likeliest).float().mean() > 0.1


@pytest.mark.parametrize("tiny", ["tiny_bert", "tiny_roberta"])
@pytest.mark.parametrize("tokens", ["argmax", "sample"])
def test_a_packed_generator_writes_the_same_tokens(request, tiny, tokens):
    from models.objectives.base import Batch

    folder = request.getfixturevalue(tiny)
    batch = Batch.of(**make_batch(load_config(str(folder)), uniforms=tokens == "sample"))
    padded, packed = (build(folder, packed, rtd_tokens=tokens)[1] for packed in (False, True))
    assert (padded.generator_runner, packed.generator_runner) == (Runner, Packed)
    written = padded.rewrite(batch)
    assert torch.equal(packed.rewrite(batch), written)
    assert (written != batch.input_ids.flatten(0, 1)).float().mean() > 0.3


def test_a_generator_with_another_vocabulary_is_refused(tiny_bert, tiny_roberta):
    from common.errors import BadInput

    config = load_config(str(tiny_bert))
    encoder = SentenceEncoder(load_backbone(str(tiny_bert), config), "cls_before_pooler", None, 64)
    with pytest.raises(BadInput, match="choose a generator with the encoder's vocabulary"):
        diffcse.METHOD.build(diffcse.Arguments(generator=str(tiny_roberta)), encoder, None, str(tiny_bert))
