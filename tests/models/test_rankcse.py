"""RankCSE against loops over lists; its teachers see what is evaluated, and learn nothing."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial import distance
from torch.nn.functional import normalize
from transformers import AutoModelForMaskedLM

from common.errors import BadInput
from data.template import templated
from models.encoder import load_encoder
from models.loading import load_tokenizer
from models.objectives import rankcse
from models.teacher import Teacher, load_teacher
from tests.methods import build_model, make_batch, mask_of
from tests.models.test_contrast import softmax
from tests.refusals import refused

MASK = mask_of([9, 4, 7, 3, 6, 8])


def jensen_shannon(rows, others):
    pairs = zip(map(softmax, rows.tolist()), map(softmax, others.tolist()), strict=True)
    return np.mean([distance.jensenshannon(*pair) ** 2 for pair in pairs])


def likelihood(scores, order):
    """Of drawing the items in this order, each by the softmax of those that are left."""
    left, product = list(order), 1.0
    for item in order:
        product *= math.exp(scores[item]) / sum(math.exp(scores[other]) for other in left)
        left.remove(item)
    return product


def list_mle(scores, ranked):
    total = 0.0
    for student, given in zip(scores.tolist(), ranked.tolist(), strict=True):
        order = sorted(range(len(given)), key=lambda item: -given[item])
        total -= math.log(likelihood(student, order))
    return total / len(scores)


def list_net(scores, targets):
    total = 0.0
    for i, (student, given) in enumerate(zip(scores.tolist(), targets.tolist(), strict=True)):
        student, given = (softmax(row[:i] + row[i + 1 :]) for row in (student, given))
        total -= sum(t * math.log(s) for t, s in zip(given, student, strict=True))
    return total / len(scores)


@pytest.mark.parametrize("name", ["jensen_shannon", "list_mle", "list_net"])
def test_a_loss_equals_its_formula(name):
    first, second = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(0)).double() * 3
    for a, b in ((first, second), (first, first), (first, second.round())):
        expected = globals()[name](a, b)
        assert getattr(rankcse, name)(a, b).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert getattr(rankcse, name)(50 * first, 50 * second).isfinite()


@pytest.fixture
def other(tiny_bert, tmp_path):
    """A trained encoder with the same vocabulary and other weights, as a run leaves it."""
    encoder = build_model("simcse", tiny_bert, pooling="avg").encoder
    torch.manual_seed(5)
    with torch.no_grad():
        for p in encoder.parameters():
            p += 0.05 * torch.randn_like(p)
    encoder.save(str(tmp_path / "other"), load_tokenizer(str(tiny_bert)))
    return str(tmp_path / "other")


@pytest.mark.parametrize("rank_loss", ["listmle", "listnet"])
def test_the_terms_follow_from_vectors_taken_sentence_by_sentence(tiny_bert, other, rank_loss):
    flags = {"teacher": [other, "self"], "teacher_pooling": None, "rank_loss": rank_loss}
    flags |= {"consistency_weight": 0.5, "rank_weight": 2.0}
    model = build_model("rankcse", tiny_bert, dropout=0.3, **flags)
    batch = make_batch("rankcse", tiny_bert, MASK)
    seen = []
    model.encoder.register_forward_hook(lambda module, given, made: seen.append(made.pooled))
    output = model(**batch)
    assert model.encoder.training
    first, second = normalize(model.projection(seen[0]).unflatten(0, (2, 6)).detach(), dim=-1)
    cosines = first @ second.T
    teachers = [load_encoder(other)[0].eval(), model.encoder.eval()]
    given = 0
    for share, teacher in zip((0.33, 0.67), teachers, strict=True):
        rows = zip(batch["input_ids"][0], MASK.sum(1).tolist(), strict=True)
        vectors = [teacher.embed(ids[None, :n], torch.ones(1, n)).detach() for ids, n in rows]
        vectors = normalize(torch.cat(vectors), dim=-1)
        given = given + share * vectors @ vectors.T
    rank = list_mle(cosines / 0.1, given)
    if rank_loss == "listnet":
        rank = list_net(cosines / 0.1, given / 0.05)
    consistency = jensen_shannon(cosines / 0.1, cosines.T / 0.1)
    assert output.terms["rank"].item() == pytest.approx(rank, rel=1e-4)
    assert output.terms["consistency"].item() == pytest.approx(consistency, rel=1e-4)
    want = output.terms["contrastive"].item() + 0.5 * consistency + 2 * rank
    assert output.loss.item() == pytest.approx(want, rel=1e-4)


def test_teachers_that_do_not_fit_are_refused(tiny_bert, tiny_roberta, other, tmp_path):
    source = str(tiny_bert)
    student = build_model("simcse", source).encoder
    assert isinstance(load_teacher(other, None, student, source), Teacher)
    refused(load_teacher, str(tiny_roberta), "avg", student, source, match="the vocabulary of")
    refused(load_teacher, source, None, student, source, match="does not state its pooling")
    AutoModelForMaskedLM.from_pretrained(source).save_pretrained(tmp_path / "template")
    templated(load_tokenizer(source), "the {text} {mask}").save_pretrained(tmp_path / "template")
    with pytest.raises(BadInput, match="a teacher must have the template of"):
        load_teacher(str(tmp_path / "template"), "mask", student, source)
