"""Training steps of every objective on a GPU that is not here. Fake tensors on `cuda:0` have a
shape and no numbers. Torch refuses for them what would make the host wait for a device (reading a
number, a shape that depends on values) and what a GPU refuses (a tensor in host memory among its
own); `NoWaiting` refuses the copies. Needs `guard.cpp`, loaded before torch."""

import sys
import tempfile
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorDeviceMismatchError, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bench.cases import FAMILIES, STAGE_ONE, TINY, Case, Materials
from models import fast
from training.graph import GraphedStep
from training.methods import method_names

GPU, BATCH = torch.device("cuda:0"), 4
COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class NoWaiting(TorchDispatchMode):
    """Refuses copies between host and device, of indices too, except asynchronous ones to it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, copies = kwargs or {}, func in COPIES
        made = func(*args, **kwargs)
        tensors = [x for x in tree_leaves((args, kwargs, made)) if isinstance(x, Tensor)]
        # Scalars in host memory are passed by value.
        devices = {x.device.type for x in tensors if copies or x.dim()}
        asynchronous = copies and (kwargs.get("non_blocking") or args[2:3] == (True,))
        if len(devices) > 1 and not (asynchronous and made.device == GPU):
            raise RuntimeError(f"the host waits for {func}")
        return made


@contextmanager
def pretending():
    """In this context, `cuda:0` is a device."""
    torch.cuda._lazy_init, torch.cuda._initialized = lambda: None, True
    torch.cuda.current_device = lambda: 0
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    # A fake tensor has no memory that a deep copy could read.
    copies = SimpleNamespace(deepcopy=lambda tensors: {k: v.clone() for k, v in tensors.items()})
    with FakeTensorMode(allow_non_fake_inputs=True), mock.patch("training.graph.copy", copies):
        yield


def move(module):
    """Move parameters and buffers; shared tensors stay shared."""
    moved = {}
    for part in module.modules():
        for held in (part._parameters, part._buffers):
            for name, value in held.items():
                if value is not None and id(value) not in moved:
                    made = value.detach().to(GPU)
                    if held is part._parameters:
                        made = nn.Parameter(made, value.requires_grad)
                    moved[id(value)] = made
                held[name] = moved.get(id(value))
    return module


class Uncaptured(GraphedStep):
    """Takes every step as if it were captured."""

    def capture(self, inputs, shares):
        return lambda: self.take(inputs, shares)


def take_steps(model, collator, half):
    """Take steps as in a CUDA graph; in the first, state is created, and the host may wait."""
    steps = [collator([(0, BATCH * step + row, step) for row in range(BATCH)]) for step in (0, 1)]
    steps = [(inputs, fast.shares_of(inputs)) for inputs in steps]
    with pretending():
        move(model).train()
        precision = torch.autocast("cuda", dtype=torch.bfloat16) if half else nullcontext()
        take = Uncaptured(model, lambda: precision, 1.0)
        optimizer = torch.optim.AdamW(take.trained, fused=True)
        for step, (inputs, shares) in enumerate(steps):
            with NoWaiting() if step else nullcontext():
                take(send_to_device(inputs, GPU, non_blocking=True), shares)
                optimizer.step()
                model.after_step()


def check_what_is_refused():
    """A mixed device and each kind of waiting, and nothing else."""
    with pretending():
        x, mask = torch.randn(3, 4, device=GPU), torch.ones(3, dtype=torch.bool, device=GPU)
        for work in (
            lambda: float(x.sum()),
            lambda: x[mask],
            lambda: mask.nonzero(),
            lambda: x[[0, 1]],
            lambda: torch.tensor([1, 2], device=GPU),
            lambda: torch.ones(3).to(GPU),
            lambda: x.to("cpu", non_blocking=True),
            lambda: x + torch.ones(3, 4),
        ):
            with NoWaiting(), pytest.raises((RuntimeError, FakeTensorDeviceMismatchError)):
                work()
        with NoWaiting():
            (x @ x.T).softmax(-1).masked_fill_(mask, 0.0)[:2].to(torch.bfloat16)


def main(folder):
    """Both values of family, path and precision for an objective; the next ones meet the others."""
    check_what_is_refused()
    materials = Materials(Path(folder), TINY, BATCH, 16, tuple(FAMILIES))
    for number, objective in enumerate([*method_names(), STAGE_ONE]):
        packed, half = number % 2 == 0, number // 2 % 2 == 0
        for family in FAMILIES:
            case = Case(objective, family, packed, "bf16" if half else "float32")
            take_steps(*materials.parts(case), half)
            packed, half = not packed, not half
        sys.stdout.write(f"{objective}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        main(temporary)
