"""Two gloo processes, and four, equal one: loss, gradients and batch statistics (docs/scale.md)."""

import importlib
import io
import os
import signal
import traceback
from contextlib import nullcontext, suppress
from datetime import timedelta
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoConfig, AutoModel

import models.fast.chunking
from models.collectives import average
from models.encoder import SentenceEncoder
from models.fast.chunking import GradientCache
from models.heads import projection_named
from models.loading import load_tokenizer
from models.objectives.base import Batch, Checkpoint
from models.training import EncoderForTraining
from search.__main__ import main as search
from tests import methods
from tests.ddp.launch import finish, flags, start, start_machines, start_ranks, worker_of
from tests.faults.forked import until
from tests.faults.harness import FORKED, check_at_rest, last_logged
from tests.folders import history, record
from training.methods import load_method

ROWS = 8
PACKED = ["infocse", "simcse_mlm", "diffcse", "consert"]
BATCH_NORM = ["infocse", "diffcse"]
CACHED = ["infocse", "simcse_mlm", "esimcse", "infocse_rtd", "nli", "sg_opt", "is_bert"]
CACHED += methods.WORDS
DECODER = "decoder, sharded"  # by FSDP2, which nothing but this test does, see docs/scale.md
STAGE_ONE = {"stage 1": False, "stage 1, packed": True}
CASES = [*methods.CASES, *(f"{case}, packed" for case in PACKED), *STAGE_ONE]


def build(case, folder):
    if case == DECODER:
        return small_decoder()
    if case in STAGE_ONE:
        return methods.stage_one(folder, STAGE_ONE[case])
    head = "batch_norm" if case in BATCH_NORM else "linear_tanh"
    return methods.build_model(case.removesuffix(", packed"), folder, case.endswith("packed"), head)


def small_decoder():
    """SimCSE on a decoder of random weights."""
    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "intermediate_size": 64, "initializer_range": 0.3}
    config = AutoConfig.for_model("qwen2", vocab_size=100, pad_token_id=1, **sizes)
    backbone = AutoModel.from_config(config)
    encoder = SentenceEncoder(backbone, "last_token")
    head, method = projection_named("linear_tanh", config.hidden_size, 0.3), load_method("simcse")
    given = method.arguments(temperature=0.1), encoder, head, Checkpoint("", backbone)
    return EncoderForTraining(encoder, head, method.build(*given)).train()


def make_batch(case, folder, seed=4):
    """Rows that differ, with twice as many masked tokens in the first process's half."""
    mask = torch.ones(ROWS, 9)
    mask[::3, 6:] = 0
    rate = torch.tensor([0.6] * (ROWS // 2) + [0.2] * (ROWS // 2)).view(ROWS, 1)
    if case == DECODER:
        case = "simcse"
    method = "infocse" if case in STAGE_ONE else case.removesuffix(", packed")
    batch = methods.make_batch(method, folder, mask, rate, seed)
    for name in (name for name in batch if name.endswith("_labels")):
        first, second = ((half != -100).sum() for half in batch[name].chunk(2, 1))
        assert first > 1.5 * second > 0
    return methods.one_view(batch) if case in STAGE_ONE else batch


def make_batches(case, folder, steps):
    """One batch for each step of gradient accumulation."""
    return [make_batch(case, folder, 4 + step) for step in range(steps)]


def shard(batch, rank, processes):
    return {name: value.chunk(processes, 1)[rank].contiguous() for name, value in batch.items()}


def measure(model, wrapped, batches):
    """Loss, gradients and buffers of a step, whose loss is the mean over its batches. Methods with
    a queue take one step before, so that it holds something."""
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
    gradients, buffers = {}, {}
    for name, p in model.named_parameters():
        if p.grad is not None:
            whole = p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad
            gradients[name] = whole.clone()
    for name, value in model.named_buffers():
        if value.is_floating_point():
            buffers[name] = value.clone()
    return loss.detach(), gradients, buffers


class Cached:
    """A model whose loss has gone back already, in chunks that do not divide the batch. The
    gradients of `steps` calls are added up, and averaged over the processes in the last of them."""

    def __init__(self, model, steps):
        self.cache, self.steps, self.calls = GradientCache(model, 3, nullcontext), steps, 0

    def __call__(self, **batch):
        self.calls += 1
        last = self.calls % self.steps == 0
        output = self.cache.backward(Batch.of(**batch), 1 / self.steps, last)
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


def measure_share(rank, processes, case, folder, cached, steps):
    model, patch = build(case, folder), nullcontext()
    if case == DECODER:
        for part in (*model.encoder.backbone.layers, model.encoder):
            fully_shard(part)
        patch = mock.patch.object(models.fast.chunking, "average", average_whole_ones)
    if cached:
        wrapped = Cached(model, steps)
    else:
        wrapped = DistributedDataParallel(model, broadcast_buffers=False)
    batches = [shard(batch, rank, processes) for batch in make_batches(case, folder, steps)]
    with patch:
        loss, gradients, buffers = measure(model, wrapped, batches)
    dist.all_reduce(loss)
    return loss / processes, gradients, buffers


def average_whole_ones(gradients):
    """FSDP2 has averaged those that it shards."""
    average(g for g in gradients if not isinstance(g, DTensor))


@pytest.fixture(scope="module")
def measure_in(tmp_path_factory):
    """Measure a case in so many processes, started once: a start takes longer than a case."""
    groups = {}

    def start(processes):
        store = tmp_path_factory.mktemp("group") / "store"
        pipes = [FORKED.Pipe() for _ in range(processes)]
        for rank, (_, theirs) in enumerate(pipes):
            FORKED.Process(target=serve, args=(rank, processes, store, theirs), daemon=True).start()
            theirs.close()  # so that the pipe breaks when the process ends
        return [ours for ours, _ in pipes]

    def measured(processes, case, folder, cached, steps):
        group = groups.pop(processes, None) or start(processes)
        for connection in group:
            connection.send((case, str(folder), cached, steps))
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
    apart = {name: (g - second[name]).norm() for name, g in first.items()}
    return max(apart[name] / (1e-5 * g.norm() + 1e-7 * whole) for name, g in first.items()).item()


FOUR = ["simcse", "infocse", "esimcse", "moco", "diffcse, packed", "stage 1, packed"]
EQUAL = [(case, False, 1, 2) for case in CASES]
EQUAL += [(case, True, 2, 2) for case in (*CACHED, DECODER)]
SLOW = [(DECODER, True, 2, 4), *((case, False, 1, 4) for case in FOUR)]
EQUAL += [pytest.param(*case, marks=pytest.mark.slow) for case in SLOW]


@pytest.mark.parametrize(("case", "cached", "steps", "processes"), EQUAL)
def test_several_processes_equal_one(case, cached, steps, processes, tiny_bert, measure_in):
    """Also in chunks and with accumulated gradients; the one process takes every batch whole."""
    model = build(case, str(tiny_bert))
    loss, gradients, buffers = measure(model, model, make_batches(case, str(tiny_bert), steps))
    answers = measure_in(processes, case, tiny_bert, cached, steps)
    for other_loss, other_gradients, other_buffers in answers:
        assert other_loss.item() == pytest.approx(loss.item(), rel=1e-5)
        assert gradients.keys() == other_gradients.keys()
        assert worst_ratio(gradients, other_gradients) <= 1
        for name, value in buffers.items():
            assert torch.allclose(value, other_buffers[name], atol=1e-6), name
    assert any(g.abs().max() > 1e-4 for g in gradients.values())


INFOCSE = {"method": "infocse", "aux_init": "random", "aux_weight": 1, "skip_from": 2}
TRAINED = {
    "infocse": INFOCSE | {"projection": "batch_norm"},
    "moco": {"method": "moco", "queue_size": 11, "momentum": 0.5},
    "stage 1": {"skip_from": 2, "max_length": 24, "test_tasks": None},
}
LOGGED = {"loss", "grad_norm", "mlm", "aux_mlm", "contrastive", "eval_aux_mlm", "eval_uniformity"}


def settings(case, model, text, dev, folder, steps):
    """The flags of a run that evaluates and saves after half of its steps and at its end."""
    common = {"model_name_or_path": model, "train_file": text, "cache_dir": folder / "cache"}
    common |= {"dropout": 0, "optim": "sgd", "learning_rate": 0.05, "logging_steps": 1}
    common |= {"max_steps": steps, "eval_steps": steps // 2, "save_steps": steps // 2}
    if case != "stage 1":
        common["dev_file"] = dev
    return common | TRAINED[case]


def script_of(case):
    return "run_pretrain_aux" if case == "stage 1" else "run_unsup"


def check_equal(case, alone, several, steps):
    """Two runs have the same log, weights at the end, best model, and result."""
    files = [f"checkpoint-{step}/model.safetensors" for step in (steps // 2, steps)]
    middle, end = (load_file(alone / file) for file in files)
    assert max((end[name] - middle[name]).abs().max().item() for name in end) > 1e-3
    for file in (files[1], "model.safetensors"):
        one, other = load_file(alone / file), load_file(several / file)
        assert one.keys() == other.keys()
        for name in one:
            assert torch.allclose(one[name], other[name], 1e-5, 5e-6 * steps), (file, name)
    for a, b in zip(history(alone), history(several), strict=True):
        for name in LOGGED & set(a):
            close = 1e-3 if name == "grad_norm" else 3e-4
            assert a[name] == pytest.approx(b[name], rel=close, abs=1e-5), (name, a["step"])
        score, other = (line.get("eval_dev_spearman", 0) for line in (a, b))
        assert score == pytest.approx(other, abs=1.0), "two nearly equal cosines may change places"
    if case != "stage 1":
        assert record(alone)["best"]["step"] == record(several)["best"]["step"]


@pytest.mark.parametrize(
    ("case", "machines", "launched", "chunk_size", "accumulation"),
    [
        ("infocse", 1, False, 0, 1),
        ("stage 1", 2, False, 0, 2),
        pytest.param("infocse", 1, True, 3, 2, marks=pytest.mark.slow),
    ],
)
def test_several_processes_train_what_one_trains(
    case, machines, launched, chunk_size, accumulation, tiny_bert, text_file, dev_file, tmp_path
):
    """From sampling to the best model: 2 x 4 sentences against 1 x 8, or 4 x 2."""
    common = settings(case, tiny_bert, text_file, dev_file, tmp_path, 4)
    common["gradient_accumulation_steps"] = accumulation
    own = {"output_dir": tmp_path / "several", "per_device_train_batch_size": 4 // machines}
    several = flags(**common, **own, chunk_size=chunk_size or None)
    script = script_of(case)
    if launched:
        said = finish(start(several))
    else:
        ranks = start_ranks(several, machines=machines, script=script)
        said = "".join(rank.end() for rank in ranks)
    assert f"processes: {2 * machines} on cpu" in said, said
    alone = flags(**common, output_dir=tmp_path / "one", per_device_train_batch_size=8)
    importlib.import_module(script).main(alone)
    check_equal(case, tmp_path / "one", tmp_path / "several", 4)
    lengths = [load_tokenizer(str(tmp_path / run)).model_max_length for run in ("one", "several")]
    assert lengths[0] == lengths[1]


@pytest.mark.slow  # four launchers with two processes each
@pytest.mark.parametrize("case", TRAINED)
def test_two_machines_train_what_one_process_trains(case, tiny_bert, text_file, dev_file, tmp_path):
    """Although the second is killed on the way, and both start again."""
    common = settings(case, tiny_bert, text_file, dev_file, tmp_path, 40)
    run, script = tmp_path / "two", script_of(case)
    two = flags(**common, output_dir=run, per_device_train_batch_size=2)
    machines = start_machines(two, script)
    worker = worker_of(machines[1])
    until(lambda: last_logged(run) > 20)
    os.kill(worker, signal.SIGKILL)
    said = [machine.communicate(timeout=120)[1] for machine in machines]
    assert [machine.returncode for machine in machines] == [1, 1], said
    check_at_rest(run)

    said = [finish(machine) for machine in start_machines(two, script)]
    assert "processes: 4 on cpu" in said[0]
    assert f"resuming from {run}/checkpoint-20" in said[0]
    alone = flags(**common, output_dir=tmp_path / "one", per_device_train_batch_size=8)
    importlib.import_module(script).main(alone)
    check_equal(case, tmp_path / "one", run, 40)


@pytest.mark.slow  # two launchers with two processes each
def test_two_machines_build_the_index_that_one_process_builds(tiny_bert, text_file, tmp_path):
    """They share the texts over the folder of kept vectors, and nothing else."""
    words = ["build", str(text_file), f"--model={tiny_bert}", "--pooling=avg", "--bf16=false"]
    both = [*words, f"--output={tmp_path / 'two'}", f"--cache_dir={tmp_path / 'cache'}"]
    for machine in start_machines(both, "search"):
        finish(machine)
    search([*words, f"--output={tmp_path / 'one'}", f"--cache_dir={tmp_path / 'other'}"])
    for file in (tmp_path / "one").rglob("*"):
        if file.is_file() and file.name != "infocse.json":
            other = tmp_path / "two" / file.relative_to(tmp_path / "one")
            assert file.read_bytes() == other.read_bytes(), file
