"""Gradient caching gives the gradients of the plain pass."""

from contextlib import nullcontext

import pytest
import torch

from models.fast.chunking import GradientCache
from models.objectives.base import Batch
from tests.methods import CASES, assert_same_step, build_model, make_batch, step

ROWS = 7


@pytest.fixture
def folder(tiny_bert):
    return str(tiny_bert)


def steps(size):
    """The plain step, and the cached one."""
    return step, lambda *given: cached(*given, size)


def build(folder, case, double=True, head="batch_norm", **options):
    model = build_model(case, folder, head=head, **options)
    return model.double() if double else model


def batch_of(case, folder):
    """Seven sentences; the last has no masked token, so one chunk of 2 or 3 has none."""
    mask = torch.ones(ROWS, 9)
    mask[::3, 6:] = 0
    return make_batch(case, folder, mask, torch.tensor([0.4] * (ROWS - 1) + [0.0]).view(-1, 1))


def cached(model, batch, size):
    return step(model, batch, GradientCache(model, size, nullcontext).backward)


def assert_equal(left, right):
    """In float64, but the terms are added up in float32."""
    assert_same_step(left, right, rel=1e-6)


SIZES = dict.fromkeys(CASES, (3,)) | {"simcse": (1, 3, 7, 50), "infocse_rtd": (1, 3, 7, 50)}


@pytest.mark.parametrize("case", CASES)
def test_without_dropout_it_is_the_plain_pass(folder, case):
    batch = batch_of(case, folder)
    expected = step(build(folder, case), batch)
    for size in SIZES[case]:
        assert_equal(expected, cached(build(folder, case), batch, size))


OTHERWISE = [("simcse", {"head": "none"}), ("infocse, auxiliary only", {"head": "none"})]
OTHERWISE += [("infocse", {"aux_cls": "other"})]  # of the batch, not of the chunk
# beside [CLS]: two boundaries
OTHERWISE += [("infocse", {"pooling": pooling}) for pooling in ("avg", "avg_top2")]
PACKED = ("infocse", "simcse_mlm", "diffcse", "is_bert", "tsdae, words")
OTHERWISE += [(case, {"packed": True}) for case in PACKED]


@pytest.mark.parametrize(("case", "options"), OTHERWISE)
def test_without_a_head_with_another_pooling_and_packed_too(folder, case, options):
    batch = batch_of(case, folder)
    assert_equal(*(take(build(folder, case, **options), batch) for take in steps(3)))


@pytest.mark.parametrize(("size", "chunks"), [(3, [3, 3, 1]), (ROWS, [ROWS])])
@pytest.mark.parametrize("case", ["moco", "esimcse"])
def test_the_key_encoder_too_sees_a_chunk_at_a_time(folder, case, size, chunks):
    model, batch = build(folder, case), batch_of(case, folder)
    memory, seen = model.objectives[0].memory, []
    memory.keys.register_forward_hook(lambda module, given, made: seen.append(len(given[0])))
    cached(model, batch, size)
    assert seen == chunks
    step(model, batch)
    assert seen == [*chunks, ROWS], "without a cache the batch is taken whole"


DROPPED = ("simcse", "infocse", "simcse_mlm", "moco", "esimcse", "infocse_rtd")


@pytest.mark.parametrize("case", DROPPED)
def test_with_dropout_the_second_pass_of_a_chunk_is_its_first(folder, case):
    """In one chunk a step draws what the plain one does; in several, each draws the same twice."""
    results, batch = [], batch_of(case, folder)
    for take in steps(ROWS):
        model = build(folder, case, dropout=0.2)
        torch.manual_seed(3)
        results.append((take(model, batch), torch.get_rng_state()))
    assert_equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    passes = []
    model.encoder.register_forward_hook(lambda module, given, made: passes.append(made.pooled))
    cached(model, batch, 3)
    assert all(torch.equal(*pair) for pair in zip(passes[:3], passes[3:], strict=True))


def test_autocast_gives_the_weights_a_gradient(folder):
    """Autocast keeps weights cast without a graph; the second pass must not meet them."""
    model, again = (build(folder, "infocse", double=False) for _ in range(2))
    batch = batch_of("infocse", folder)
    bf16 = lambda: torch.autocast("cpu", dtype=torch.bfloat16)  # noqa: E731
    GradientCache(model, 3, bf16).backward(Batch.of(**batch))
    with bf16():
        loss = again(**batch).loss
    loss.backward()
    gradients = []
    for part in (again, model):
        parts = [p.grad.flatten() for p in part.parameters() if p.requires_grad]
        gradients.append(torch.cat(parts))
    assert torch.cosine_similarity(*gradients, dim=0) > 0.95
