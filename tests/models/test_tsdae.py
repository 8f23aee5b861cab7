"""TSDAE against sentence-transformers' own loss; what is deleted."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from models.families import output_of
from models.loading import load_tokenizer
from models.objectives import tsdae
from models.objectives.cropping import delete
from tests.methods import build_model


@pytest.fixture
def batch(folder, text_file, collated):
    return collated(folder, text_file, tsdae.METHOD.views(tsdae.Arguments()), range(12))


def parts(model, loss):
    """The same modules of our model and of their decoder, to which their encoder is tied."""
    theirs, ours = loss.decoder.base_model, model.objectives[0]
    yield model.encoder.backbone.embeddings, theirs.embeddings
    yield ours.output.transform, output_of(loss.decoder)[0]
    layers = model.encoder.backbone.encoder.layer, ours.cross, theirs.encoder.layer
    for layer, cross, their in zip(*layers, strict=True):
        for name in ("attention", "intermediate", "output"):
            yield layer.get_submodule(name), their.get_submodule(name)
        yield cross.value, their.crossattention.self.value
        yield cross.output, their.crossattention.output


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_loss_and_gradients_are_those_of_sentence_transformers(folder, batch, pooling):
    theirs = SentenceTransformer(modules=[Transformer(folder), Pooling(32, pooling)], device="cpu")
    loss = DenoisingAutoEncoderLoss(theirs, tie_encoder_decoder=True).eval()
    ours = {"cls": "cls_before_pooler", "mean": "avg"}[pooling]
    model = build_model("tsdae", folder, pooling=ours)
    for part, their in parts(model, loss):
        part.load_state_dict(their.state_dict())  # their cross-attention is new
    names = ("input_ids", "attention_mask")
    deleted, whole = ({n: batch[of + n][0] for n in names} for of in ("", "target_"))
    expected = loss([deleted, whole], None)
    expected.backward()
    value = model(**batch).loss
    value.backward()
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    compared = 0
    for part, their in parts(model, loss):
        for name, p in part.named_parameters():
            want = their.get_parameter(name).grad
            assert want.norm() > 0
            assert (p.grad - want).norm() <= 1e-4 * want.norm() + 1e-6, name
            compared += 1
    decoder = output_of(loss.decoder)[1]
    assert torch.allclose(model.objectives[0].output.bias.grad, decoder.bias.grad, atol=1e-6)
    assert compared + 1 == sum(1 for _ in model.parameters()), "the tied matrix is one"
    for layer in loss.decoder.base_model.encoder.layer:
        for unused in (layer.crossattention.self.query, layer.crossattention.self.key):
            assert unused.weight.grad.abs().max() < 1e-6, "over one key, which we do not build"


def test_a_target_is_the_whole_sentence_and_the_view_what_is_left_of_it(folder, batch, sentences):
    tokenizer, shares = load_tokenizer(folder), []
    for row in range(12):
        left, whole = (
            batch[f"{name}input_ids"][0, row][batch[f"{name}attention_mask"][0, row] == 1].tolist()
            for name in ("", "target_")
        )
        assert whole == tokenizer(sentences[row])["input_ids"]
        rest = iter(whole)
        assert all(token in rest for token in left), "in order"
        shares.append((len(left) - 2) / (len(whole) - 2))
    assert 0.25 < np.mean(shares) < 0.55


WORDS = [(0, 1), (2,), (3, 4, 5), (6, 7), (8,)]


@pytest.mark.parametrize("first", [True, False, None])
def test_words_are_deleted_with_all_their_pieces_and_one_stays(first):
    """A byte-level tokenizer does not mark the first word of a text; None: tokens are deleted."""
    ids, starts = np.arange(9), np.array([first, 0, 1, 1, 0, 0, 1, 0, 1], dtype=bool)
    words = [(i,) for i in ids] if first is None else WORDS
    generator = np.random.default_rng(0)
    given = ids, None if first is None else starts, generator, 0.6
    made = [tuple(delete(*given)) for _ in range(2000)]
    for word in words:
        assert all(set(word) <= set(kept) or not set(word) & set(kept) for kept in made)
    counts = [sum(word[0] in kept for word in words) for kept in made]
    assert min(counts) == 1
    assert np.mean(counts) == pytest.approx(len(words) * 0.4 + 0.6 ** len(words), abs=0.08)
    alone = [kept for kept, count in zip(made, counts, strict=True) if count == 1]
    assert set(alone) == set(words)
