"""Two gloo processes, and four, equal one: loss, gradients and batch statistics (docs/scale.md)."""

import io
import os
import traceback
from contextlib import nullcontext, suppress
from datetime import timedelta
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.nn.parallel import DistributedDataParallel

import models.training
import run_unsup
from models.fast.chunking import GradientCache
from models.loading import load_backbone, load_tokenizer
from models.objectives.base import Batch
from tests import methods
from tests.ddp.launch import FORKED, finish, flags, start, start_both
from tests.folders import history

ROWS = 8
PACKED = ["infocse", "simcse_mlm", "diffcse", "consert"]
BATCH_NORM = ["infocse", "diffcse"]
CACHED = [
    "infocse",
    "simcse_mlm",
    "esimcse",
    "infocse_rtd",
    "nli",
    "sg_opt",
    "is_bert",
    "tsdae, words",
]
STAGE_ONE = {"stage 1": False, "stage 1, packed": True}
CASES = [*methods.CASES, *(f"{case}, packed" for case in PACKED), *STAGE_ONE]


def build(case, folder):
    if case in STAGE_ONE:
        return methods.stage_one(folder, STAGE_ONE[case])
    head = "batch_norm" if case in BATCH_NORM else "linear_tanh"
    return methods.build_model(case.removesuffix(", packed"), folder, case.endswith("packed"), head)


def make_batch(case, folder, seed=4):
    """Rows that differ, with twice as many masked tokens in the first process's half."""
    mask = torch.ones(ROWS, 9)
    mask[::3, 6:] = 0
    rate = torch.tensor([0.6] * (ROWS // 2) + [0.2] * (ROWS // 2)).view(ROWS, 1)
    method = "infocse" if case in STAGE_ONE else case.removesuffix(", packed")
    batch = methods.make_batch(method, folder, mask, rate, seed)
    for name in (name for name in batch if name.endswith("_labels")):
        counts = [
            (batch[name][:, half] != -100).sum().item() for half in (slice(0, 4), slice(4, 8))
        ]
        assert counts[0] > 1.5 * counts[1] > 0
    if case not in STAGE_ONE:
        return batch
    return methods.one_view(batch)


def make_batches(case, folder, steps):
    """One batch for each step of gradient accumulation."""
    return [make_batch(case, folder, 4 + step) for step in range(steps)]


def shard(batch, rank, processes):
    return {name: value.chunk(processes, 1)[rank].contiguous() for name, value in batch.items()}


def measure(model, wrapped, batches):
    """Loss, gradients and buffers of a step, whose loss is the mean over its batches.

    Methods with a queue take one step before, so that it holds something.
    """
    if any(name.endswith("queue.pushed") for name, _ in model.named_buffers()):
        for batch in batches:
            wrapped(**batch).loss.backward()
        generator = torch.Generator().manual_seed(6)
        with torch.no_grad():
            for p in model.parameters():
                p += 0.01 * torch.randn(p.shape, generator=generator) * p.requires_grad
        model.after_step()
        model.zero_grad(set_to_none=True)
    loss = sum(wrapped(**batch).loss for batch in batches) / len(batches)
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    buffers = {
        name: value.clone() for name, value in model.named_buffers() if value.is_floating_point()
    }
    return loss.detach(), gradients, buffers


class Cached:
    """A wrapped model whose loss has gone back already, in chunks that do not divide the batch.

    The gradients of `steps` calls are added up, and averaged over the processes in the last of
    them.
    """

    def __init__(self, wrapped, steps):
        self.cache, self.steps, self.calls = GradientCache(wrapped.module, 3, nullcontext), steps, 0

    def __call__(self, **batch):
        self.calls += 1
        output = self.cache.backward(
            Batch.of(**batch), 1 / self.steps, self.calls % self.steps == 0
        )
        output.loss.requires_grad_()  # for a backward pass that changes nothing
        return output


def serve(rank, processes, store, connection):
    """One of several processes: takes case after case and sends the bytes of what it measures."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{store}", timedelta(seconds=120), processes, rank)
    try:
        while True:
            stored = io.BytesIO()
            torch.save(measure_share(rank, processes, *connection.recv()), stored)
            connection.send(stored.getvalue())
    except Exception:
        with suppress(OSError):  # nobody listens: the tests have ended
            connection.send(traceback.format_exc())
    os._exit(1)  # gloo's threads are not always joined: this would hang; the others fail too


def measure_share(rank, processes, case, folder, detached, cached, steps):
    model = build(case, folder)
    wrapped = DistributedDataParallel(model, broadcast_buffers=False, find_unused_parameters=False)
    wrapped = Cached(wrapped, steps) if cached else wrapped
    batches = [shard(batch, rank, processes) for batch in make_batches(case, folder, steps)]
    gather = mock.patch.object(models.training, "gather_with_gradient", gather_without_gradient)
    with gather if detached else nullcontext():
        loss, gradients, buffers = measure(model, wrapped, batches)
    dist.all_reduce(loss)
    return loss / processes, gradients, buffers


def gather_without_gradient(local):
    """What the family's published code does: other processes' rows are constants."""
    parts = [torch.zeros_like(local) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, local.detach().contiguous())
    parts[dist.get_rank()] = local
    return torch.cat(parts, dim=1)


@pytest.fixture(scope="module")
def measure_in(tmp_path_factory):
    """Measure a case in so many processes, started once: a start takes longer than a case."""
    groups = {}

    def start(processes):
        store, pipes = (
            tmp_path_factory.mktemp("group") / "store",
            [FORKED.Pipe() for _ in range(processes)],
        )
        for rank, (_, theirs) in enumerate(pipes):
            FORKED.Process(target=serve, args=(rank, processes, store, theirs), daemon=True).start()
            theirs.close()  # so that the pipe breaks when the process ends
        return [ours for ours, _ in pipes]

    def measured(processes, case, folder, detached=False, cached=False, steps=1):
        group = groups.pop(processes, None) or start(processes)
        for connection in group:
            connection.send((case, str(folder), detached, cached, steps))
        try:
            answers = [connection.recv() for connection in group]
        except EOFError:
            pytest.fail("a process was killed")
        if said := [answer for answer in answers if isinstance(answer, str)]:
            pytest.fail("\n".join(said))
        groups[processes] = group
        return [torch.load(io.BytesIO(answer), weights_only=True) for answer in answers]

    return measured


def worst_ratio(first, second):
    """Largest |g1 - g2| over 1e-5 |g| + 1e-7 |gradient of the whole model|; at most 1 is equal."""
    whole = torch.cat([g.flatten() for g in first.values()]).norm()
    return max(
        ((first[n] - second[n]).norm() / (1e-5 * first[n].norm() + 1e-7 * whole)).item()
        for n in first
    )


FOUR = ["simcse", "infocse", "esimcse", "diffcse, packed", "stage 1, packed"]


@pytest.mark.parametrize(
    ("case", "cached", "steps", "processes"),
    [
        *((case, False, 1, 2) for case in CASES),
        *((case, True, 2, 2) for case in CACHED),
        *(pytest.param(case, False, 1, 4, marks=pytest.mark.slow) for case in FOUR),
    ],
)
def test_several_processes_equal_one(case, cached, steps, processes, tiny_bert, measure_in):
    """Also in chunks and with accumulated gradients; the one process takes every batch whole."""
    model = build(case, str(tiny_bert))
    loss, gradients, buffers = measure(model, model, make_batches(case, str(tiny_bert), steps))
    answers = measure_in(processes, case, tiny_bert, cached=cached, steps=steps)
    for other_loss, other_gradients, other_buffers in answers:
        assert other_loss.item() == pytest.approx(loss.item(), rel=1e-5)
        assert gradients.keys() == other_gradients.keys()
        assert worst_ratio(gradients, other_gradients) <= 1
        for name, value in buffers.items():
            assert torch.allclose(value, other_buffers[name], atol=1e-6), name
    assert any(g.abs().max() > 1e-4 for g in gradients.values())


def test_a_gather_without_gradient_fails_the_same_comparison(tiny_bert, measure_in):
    case = "simcse"
    model = build(case, str(tiny_bert))
    _, gradients, _ = measure(model, model, make_batches(case, str(tiny_bert), 1))
    two = measure_in(2, case, tiny_bert, detached=True)
    assert worst_ratio(gradients, two[0][1]) > 100


@pytest.mark.parametrize(
    ("launched", "chunk_size", "accumulation"),
    [(False, 0, 1), pytest.param(True, 3, 2, marks=pytest.mark.slow)],
)
def test_two_processes_train_what_one_trains(
    tiny_bert, text_file, dev_file, tmp_path, launched, chunk_size, accumulation
):
    """From sampling to the best model: 2 x 4 sentences against 1 x 8."""
    common = {
        "method": "infocse",
        "aux_init": "random",
        "aux_weight": 1,
        "skip_from": 2,
        "projection": "batch_norm",
    }
    common |= {
        "model_name_or_path": tiny_bert,
        "train_file": text_file,
        "dev_file": dev_file,
        "dropout": 0,
    }
    common |= {
        "cache_dir": tmp_path / "cache",
        "max_steps": 4,
        "eval_steps": 2,
        "save_steps": 4,
        "logging_steps": 1,
    }
    common |= {"optim": "sgd", "learning_rate": 0.05, "gradient_accumulation_steps": accumulation}
    two = flags(
        **common, output_dir=tmp_path / "two", per_device_train_batch_size=4, chunk_size=chunk_size
    )
    said = finish(start(two)) if launched else "".join(process.end() for process in start_both(two))
    assert "processes: 2 on cpu" in said, said
    run_unsup.main(flags(**common, output_dir=tmp_path / "one", per_device_train_batch_size=8))
    alone, two = (
        load_file(tmp_path / run / "checkpoint-4" / "model.safetensors") for run in ("one", "two")
    )
    before = load_backbone(str(tiny_bert)).state_dict()
    moved = max(
        (alone[f"encoder.backbone.{n}"] - v).abs().max().item()
        for n, v in before.items()
        if v.is_floating_point()
    )
    assert moved > 1e-3
    assert max((alone[name] - two[name]).abs().max().item() for name in alone) < 1e-5
    logs = [history(tmp_path / run) for run in ("one", "two")]
    for a, b in zip(*logs, strict=True):
        for name in {"loss", "aux_mlm", "contrastive", "eval_aux_mlm", "eval_uniformity"} & set(a):
            assert a[name] == pytest.approx(b[name], rel=1e-4), (name, a["step"])
        # Two nearly equal cosines of thirty may change places.
        assert a.get("eval_dev_spearman", 0) == pytest.approx(
            b.get("eval_dev_spearman", 0), abs=1.0
        )
    assert load_tokenizer(str(tmp_path / "two")).model_max_length == 64
