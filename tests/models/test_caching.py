"""Gradient caching gives the gradients of the plain pass, and with dropout those of the chunks with all graphs kept."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from models.caching import GradientCache
from models.encoder import SentenceEncoder
from models.heads import projection_named
from models.loading import load_backbone, load_config
from models.objectives import (
    ct,
    diffcse,
    esimcse,
    infocse,
    infocse_rtd,
    is_bert,
    mirror_bert,
    moco,
    s_simcse,
    sg_opt,
    simcse,
    simcse_mlm,
)
from models.objectives.base import Batch, Encoded
from models.training import EncoderForTraining
from training.run import set_dropout

ROWS = 7
INFO = {"aux_init": "random", "skip_from": 2, "aux_weight": 1.0}
RTD = {"rtd_weight": 1.0, "generator_dropout": False}
QUEUE = {"queue_size": 11, "momentum": 0.5}
CASES = {  # method, arguments, head
    "simcse": (simcse, {}, "linear_tanh"),
    "no head": (simcse, {}, "none"),
    "infocse": (infocse, INFO, "batch_norm"),
    "infocse, first view": (infocse, INFO | {"aux_views": "first"}, "batch_norm"),
    "auxiliary only": (infocse, INFO | {"contrastive_weight": 0.0}, "none"),
    "simcse_mlm": (simcse_mlm, {"mlm_weight": 1.0}, "linear_tanh"),
    "s_simcse": (s_simcse, {}, "linear_tanh"),
    "moco": (moco, QUEUE, "batch_norm"),
    "moco, no head": (moco, QUEUE | {"queue_head": "none", "momentum_mode": "eval"}, "linear_tanh"),
    "esimcse": (esimcse, QUEUE, "linear_tanh"),
    "diffcse": (diffcse, RTD, "batch_norm"),
    "diffcse, pooled": (diffcse, RTD | {"rtd_condition": "pooled"}, "batch_norm"),
    "diffcse, padding": (diffcse, RTD | {"pad_as_negative": True}, "linear_tanh"),
    "infocse_rtd": (infocse_rtd, INFO | RTD, "batch_norm"),
    "ct": (ct, {"negatives": 2}, "none"),
    "mirror_bert": (mirror_bert, {}, "none"),
    "sg_opt": (sg_opt, {"temperature": 0.05}, "linear_tanh"),
    "is_bert": (is_bert, {"filters": 6}, "none"),
}


@pytest.fixture(autouse=True)
def _nothing_rounds(monkeypatch):
    """Losses ask for float32; here they stay in float64, so that equal means equal: batch norm multiplies rounding."""
    monkeypatch.setattr(torch.Tensor, "float", lambda self: self)


def build(folder, case, dropout=0.0, packed=False, double=True, pooling="cls_before_pooler"):
    method, options, projection = CASES[case]
    config = load_config(folder)
    set_dropout(config, dropout)
    torch.manual_seed(1)
    encoder = SentenceEncoder(load_backbone(folder, config), pooling, None, 64, packed)
    head = projection_named(projection, config.hidden_size, 0.3)
    generator = {"generator": folder} if method in (diffcse, infocse_rtd) else {}
    objectives = method.build(method.Arguments(**options, **generator), encoder, head, folder)
    model = EncoderForTraining(encoder, head, objectives).train()
    return model.double() if double else model


def make_batch(case):
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(10, 90, (2, ROWS, 9), generator=generator)
    mask = torch.ones_like(ids)
    mask[:, ::3, 6:] = 0
    chosen = (torch.rand(ids.shape, generator=generator) < 0.4) & (mask == 1)
    chosen[:, :, 0] = False
    chosen[:, -1] = False  # with chunks of 2 or 3, one that has no masked token
    masked, labels = torch.where(chosen, 5, ids), torch.where(chosen, ids, -100)
    batch = Batch(ids, mask)
    method = CASES[case][0]
    if method in (infocse, infocse_rtd, simcse_mlm):
        views = 1 if case.endswith("first view") else 2
        batch.masked_input_ids, batch.masked_labels = masked[:views], labels[:views]
    if method in (diffcse, infocse_rtd):
        batch.rtd_input_ids, batch.rtd_labels = masked, labels
    if method is s_simcse:
        batch.dropout_rates = torch.zeros(2, ROWS, 1)
    return batch


def arguments(batch):
    return {name: value for name, value in vars(batch).items() if value is not None}


def cached(model, batch, size, **more):
    """Loss, terms, gradients and buffers after the cached step."""
    return measured(model, GradientCache(model, size, nullcontext).backward(batch, **more))


def plain(model, batch):
    output = model(**arguments(batch))
    output.loss.backward()
    return measured(model, output)


def measured(model, output):
    gradients = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    return output.loss.detach(), output.terms, gradients, dict(model.named_buffers())


def assert_equal(one, two):
    assert one[1].keys() == two[1].keys()
    torch.testing.assert_close(one[0], two[0], rtol=1e-6, atol=1e-7)  # the terms are added up in float32
    for name, value in one[1].items():
        torch.testing.assert_close(value.double(), two[1][name].double(), rtol=1e-6, atol=1e-7, msg=name)
    whole = torch.cat([g.flatten() for g in one[2].values()]).norm()
    assert whole > 1e-3
    for name, gradient in one[2].items():
        assert (gradient - two[2][name]).norm() <= 1e-6 * gradient.norm() + 1e-8 * whole, name
    for name, value in one[3].items():
        torch.testing.assert_close(value, two[3][name], rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("size", [1, 3, 7, 50])
@pytest.mark.parametrize("case", CASES)
def test_without_dropout_it_is_the_plain_pass(tiny_bert, case, size):
    batch = make_batch(case)
    assert_equal(plain(build(str(tiny_bert), case), batch), cached(build(str(tiny_bert), case), batch, size))


@pytest.mark.parametrize("pooling", ["avg", "avg_top2"])
def test_other_pooled_vectors_and_cls_are_two_boundaries(tiny_bert, pooling):
    folder, batch = str(tiny_bert), make_batch("infocse")
    models = [build(folder, "infocse", pooling=pooling) for _ in range(2)]
    assert_equal(plain(models[0], batch), cached(models[1], batch, 3))


@pytest.mark.parametrize("case", ["infocse", "simcse_mlm", "diffcse", "is_bert"])
def test_packed_too(tiny_bert, case):
    folder, batch = str(tiny_bert), make_batch(case)
    assert_equal(plain(build(folder, case, packed=True), batch), cached(build(folder, case, packed=True), batch, 3))


def test_queues_hold_the_same_over_several_steps(tiny_bert):
    batch, found = make_batch("esimcse"), []
    for step in (plain, lambda *given: cached(*given, 2)):
        model = build(str(tiny_bert), "esimcse")
        for _ in range(3):
            model.zero_grad()
            last = step(model, batch)
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad if p.grad is not None else 0
            model.after_step()
        found.append(last)
    assert found[0][3]["objectives.0.memory.queue.pushed"] == 3 * ROWS
    assert_equal(*found)


@pytest.mark.parametrize(("size", "chunks"), [(3, [3, 3, 1]), (ROWS, [ROWS])])
@pytest.mark.parametrize("case", ["moco", "moco, no head", "esimcse"])
def test_the_key_encoder_too_sees_a_chunk_at_a_time(tiny_bert, case, size, chunks):
    model, batch = build(str(tiny_bert), case), make_batch(case)
    memory, seen = model.objectives[0].memory, []
    memory.keys.register_forward_hook(lambda module, given, made: seen.append(len(given[0])))
    cached(model, batch, size)
    assert seen == chunks
    plain(model, batch)
    assert seen == [*chunks, ROWS], "without a cache the batch is taken whole"


def all_graphs_kept(model, batch, size):
    """The same forward in chunks, nothing cached: one graph, one backward, random numbers in their natural order."""
    chunks = batch.split(size)
    parts = [model.encode(chunk) for chunk in chunks]
    encoded = Encoded(
        torch.cat([p.pooled for p in parts], 1), torch.cat([p.cls for p in parts], 1), None, model.encoder, model.head,
        chunk_size=size,
    )  # fmt: skip
    model.project(encoded)
    loss, terms = 0.0, {}
    tokens = [o for o in model.objectives if o.tokens(batch) is not None]
    for objective in model.objectives:
        for name, term in {} if objective in tokens else objective(encoded, batch).items():
            loss, terms[name] = loss + term.weight * term.value, term.value.detach()
    for number, chunk in enumerate(chunks):
        rows = slice(number * size, (number + 1) * size)
        own = encoded.own_projected[:, rows]
        part = replace(encoded, pooled=encoded.pooled[:, rows], cls=encoded.cls[:, rows], own_projected=own)
        for objective in tokens:
            share = objective.tokens(chunk) / objective.tokens(batch)
            for name, term in objective(part, chunk).items():
                loss = loss + term.weight * share * term.value
                terms[name] = terms.get(name, 0) + share * term.value.detach()
    loss.backward()
    return loss.detach(), terms


@pytest.mark.parametrize("case", ["simcse", "infocse", "simcse_mlm", "moco", "esimcse", "infocse_rtd"])
def test_with_dropout_it_is_the_chunked_forward_with_all_graphs_kept(tiny_bert, case):
    models, batch = [build(str(tiny_bert), case, dropout=0.2) for _ in range(2)], make_batch(case)
    torch.manual_seed(3)
    loss, terms = all_graphs_kept(models[0], batch, 3)
    state = torch.get_rng_state()
    torch.manual_seed(3)
    found = cached(models[1], batch, 3)
    assert torch.equal(torch.get_rng_state(), state), "a step draws as much as its first pass"
    gradients = {name: p.grad for name, p in models[0].named_parameters() if p.requires_grad}
    assert_equal((loss, terms, gradients, dict(models[0].named_buffers())), found)


def test_one_chunk_with_dropout_is_the_plain_pass(tiny_bert):
    models, batch = [build(str(tiny_bert), "infocse", dropout=0.2) for _ in range(2)], make_batch("infocse")
    found = []
    for model, step in zip(models, (plain, lambda *given: cached(*given, ROWS)), strict=True):
        torch.manual_seed(3)
        found.append(step(model, batch))
    assert_equal(*found)


def test_scaled_steps_add_up(tiny_bert):
    model, again = (build(str(tiny_bert), "infocse") for _ in range(2))
    batch = make_batch("infocse")
    for synchronise in (False, True):
        found = cached(model, batch, 3, scale=0.5, synchronise=synchronise)
    assert_equal((*cached(again, batch, 3)[:3], {}), found)


def test_autocast_gives_the_weights_a_gradient(tiny_bert):
    """Autocast keeps weights cast without a graph; the second pass must not meet them."""
    model, again = (build(str(tiny_bert), "infocse", double=False) for _ in range(2))
    batch = make_batch("infocse")
    bf16 = lambda: torch.autocast("cpu", dtype=torch.bfloat16)  # noqa: E731
    GradientCache(model, 3, bf16).backward(batch)
    with bf16():
        loss = again(**arguments(batch)).loss
    loss.backward()
    one, two = (torch.cat([p.grad.flatten() for p in m.parameters() if p.requires_grad]) for m in (again, model))
    assert torch.cosine_similarity(one, two, dim=0) > 0.95
