"""Tensors that claim to be on `cuda:0` but hold CPU data, and a log of the operations a GPU would
execute.

Every aten operation on them is computed on the CPU and counted, unless it is a view. A
synchronisation makes the host wait for the device: reading a number, an output whose shape depends
on values, a copy between host and device that is not asynchronous. A mixed device is an operation
that a GPU refuses because one of its tensors is in host memory.

torch chooses some kernels by device before dispatching any operation; a CPU build does not have
those of CUDA, such as fused attention. Needs `guard.cpp`, loaded before torch.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import optimizer as optimizers
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

from common.files import ROOT

DEVICE = torch.device("cuda:0")
_ROOT, _HERE = str(ROOT), str(Path(__file__).parent)
_WAITING = ("_local_scalar_dense.", "equal.", "nonzero.", "masked_select.", "bincount.")
_WAITING += ("_unique2.", "unique_dim.", "unique_consecutive.", "repeat_interleave.Tensor")
_INDEXING = ("index.Tensor", "_unsafe_index.Tensor", "index_put_.default", "index_put.default")
_INDEXING += ("_index_put_impl_.default",)


class Log:
    """Operations since `reset`: their number, and counters by operation and line in our sources."""

    def __init__(self) -> None:
        self.reset()

    def reset(self, active: bool = False) -> None:
        self.active = active
        self.operations, self.synchronisations, self.mixed = 0, Counter(), Counter()

    def wait(self, cause: str) -> None:
        if self.active:
            self.synchronisations[f"{cause} at {_place()}"] += 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        was, self.active = self.active, False
        try:
            yield
        finally:
            self.active = was


LOG = Log()


def _place() -> str:
    """The innermost running line of our code."""
    frame = sys._getframe(1)
    while frame:
        name = frame.f_code.co_filename
        if name.startswith(_ROOT) and not name.startswith(_HERE) and "site-packages" not in name:
            return f"{name[len(_ROOT) + 1 :]}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


class Pretend(Tensor):
    """A tensor on the pretend device; `held` is the CPU tensor with its data."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor, requires_grad: bool = False):
        made = Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            device=DEVICE,
            requires_grad=requires_grad,
        )
        made.held = held.detach()
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


def _on_host(x: object) -> bool:
    return isinstance(x, Tensor) and not isinstance(x, Pretend)


def _held(x: object) -> object:
    return x.held if isinstance(x, Pretend) else x


def _run(func, args: tuple, kwargs: dict):
    """Count one aten operation and compute it on the CPU."""
    flat, _ = tree_flatten((args, kwargs))
    ours = [x for x in flat if isinstance(x, Pretend)]
    target = torch.device(kwargs["device"]).type if kwargs.get("device") is not None else None
    if not ours and target != "cuda":
        return func(*args, **kwargs)
    if LOG.active:
        _count(func, args, kwargs, flat, ours, target)
    cpu_args, cpu_kwargs = tree_map(_held, (args, kwargs))
    if target == "cuda":
        cpu_kwargs |= {"device": torch.device("cpu")}
        cpu_kwargs.pop("pin_memory", None)
    out = func(*cpu_args, **cpu_kwargs)
    if target == "cpu":
        return out
    known = {id(x.held): x for x in ours} if func._schema.is_mutable else {}

    def wrap(x):
        if not _on_host(x):
            return x
        return known[id(x)] if id(x) in known else Pretend(x)

    wrapped = tree_map(wrap, out)
    returned = [value.alias_info is not None for value in func._schema.returns]
    if func.is_view or any(returned):
        return return_and_correct_aliasing(func, args, kwargs, wrapped)
    return wrapped


def _count(func, args: tuple, kwargs: dict, flat: list, ours: list, target: str | None) -> None:
    name, host = str(func).removeprefix("aten."), [x for x in flat if _on_host(x)]
    LOG.operations += not func.is_view
    if name.startswith(_WAITING):
        LOG.wait(name)
    if name in ("_to_copy.default", "copy_.default"):
        to_device = isinstance(args[0], Pretend) if name == "copy_.default" else target == "cuda"
        asynchronous = to_device and (kwargs.get("non_blocking") or args[2:3] == (True,))
        crosses = not ours or host or target == "cpu"  # copies to the host are read at once
        if crosses and not asynchronous:
            LOG.wait("copy")
        return
    indices = [x for x in args[1] if x is not None] if name in _INDEXING else []
    if any(index.dtype in (torch.bool, torch.uint8) or _on_host(index) for index in indices):
        LOG.wait("index by a mask or from the host")
    others = [x for x in host if not any(x is index for index in indices)]
    if ours and any(x.dim() for x in others):  # scalars in host memory are passed by value
        LOG.mixed[f"{name} at {_place()}"] += 1


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


def _from_list(part: object) -> object:
    return Pretend(torch.tensor(part)) if isinstance(part, list) else part


class _Functions(TorchFunctionMode):
    """Functions that do not reach the dispatcher as they would with a GPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is Tensor.__getitem__ and isinstance(args[0], Pretend):
            parts = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(part, list) for part in parts):
                LOG.wait("list index")
                return func(args[0], tuple(map(_from_list, parts)))
        elif func in (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor):
            return self._from_host(func, args, kwargs)
        elif func is nn.functional.scaled_dot_product_attention and isinstance(args[0], Pretend):
            return _attention(*args, **kwargs)
        return func(*args, **kwargs)

    def _from_host(self, func, args: tuple, kwargs: dict):
        """Make a tensor from host data."""
        model = args[0] if func is Tensor.new_tensor else None
        data = args[-1]
        like = model if model is not None else data
        device = kwargs.pop("device", None) or (like.device if isinstance(like, Tensor) else "cpu")
        if isinstance(data, Pretend) or torch.device(device).type != "cuda":
            return func(*args, **kwargs, device=device)
        LOG.wait(func.__name__)
        with LOG.paused():
            kwargs.setdefault("dtype", model.dtype if model is not None else None)
            return Pretend(torch.tensor(data, **kwargs))


def _attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """By its formula."""
    if torch.is_autocast_enabled("cuda"):
        query, key, value = (x.to(torch.get_autocast_dtype("cuda")) for x in (query, key, value))
    scores = (query * (scale or query.shape[-1] ** -0.5)) @ key.transpose(-1, -2)
    if attn_mask is not None:
        is_bool = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, float("-inf")) if is_bool else scores + attn_mask
    return nn.functional.dropout(scores.softmax(-1).to(value.dtype), dropout_p) @ value


def move(module: nn.Module) -> nn.Module:
    """Move parameters and buffers to the pretend device; shared tensors stay shared."""
    moved: dict[int, Tensor] = {}
    for part in module.modules():
        for name, held in part._parameters.items():
            if held is not None and id(held) not in moved:
                copied = Pretend(held.detach().clone())
                moved[id(held)] = nn.Parameter(copied, requires_grad=held.requires_grad)
            part._parameters[name] = moved.get(id(held))
        for name, held in part._buffers.items():
            if held is not None:
                part._buffers[name] = moved.setdefault(id(held), Pretend(held.clone()))
    return module


@contextmanager
def pretending() -> Iterator[Log]:
    """In this context, `cuda:0` is the pretend device."""
    torch.cuda._lazy_init, torch.cuda._initialized = lambda: None, True
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    if Pretend not in optimizers._foreach_supported_types:
        optimizers._foreach_supported_types.append(Pretend)
    with _Operations(), _Functions():
        yield LOG
