"""Communication between processes; the only file that imports torch.distributed.

DistributedDataParallel averages gradients over the W processes; `average` does so without it. A
loss that every process computes in full, over vectors gathered with gradient, is therefore correct
as it is; a sum over local tokens must be multiplied by W.
"""

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """Return the number of processes, 1 without a launcher."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def wait_for_everyone(device: torch.device) -> None:
    """Wait until all processes are here.

    accelerate's own barrier takes a GPU even for processes on the CPU.
    """
    if world_size() > 1:
        dist.barrier(device_ids=[device.index] if device.type == "cuda" else None)


def gather_with_gradient(local: Tensor) -> Tensor:
    """Gather the rows of all processes in rank order, (V, B, H) -> (V, N, H).

    Gradient flows back to every process.
    """
    return local if world_size() == 1 else _AllGather.apply(local.contiguous())


class _AllGather(torch.autograd.Function):
    """Rows of all processes; a row's gradient is the sum of its gradients in all processes."""

    @staticmethod
    def forward(ctx, local: Tensor) -> Tensor:
        parts = [torch.empty_like(local) for _ in range(world_size())]
        dist.all_gather(parts, local)
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return local_rows(sum_over_processes(gradient.contiguous()))


@torch.no_grad()
def gather_rows(local: Tensor) -> Tensor:
    """Gather the rows of all processes in rank order, without gradient: (B, D) -> (N, D)."""
    return gather_with_gradient(local.unsqueeze(0)).squeeze(0)


def local_rows(everyone: Tensor) -> Tensor:
    """Return this process's part of gathered rows, (V, N, D) -> (V, B, D)."""
    return everyone if world_size() == 1 else everyone.chunk(world_size(), dim=1)[dist.get_rank()]


def means_over_tokens(totals: Sequence[Tensor], counts: Sequence[Tensor]) -> list[Tensor]:
    """Divide sums of local token losses by the token counts of all processes.

    One all-reduce for all losses. Scaled so that the mean of a returned value over the processes,
    as DDP takes it, is the mean over all tokens.
    """
    if world_size() > 1 and counts:
        counts = sum_over_processes(torch.stack(list(counts))).unbind()
    pairs = zip(totals, counts, strict=True)
    return [total * world_size() / count.clamp(min=1) for total, count in pairs]


@torch.no_grad()
def sum_over_processes(local: Tensor) -> Tensor:
    """Return the sum of the processes' tensors."""
    everyone = local.clone()
    if world_size() > 1:
        dist.all_reduce(everyone)
    return everyone


@torch.no_grad()
def average(tensors: Iterable[Tensor]) -> None:
    """Replace every tensor by its mean over the processes.

    All must pass the same shapes in the same order.
    """
    if world_size() == 1:
        return
    running = [(tensor, dist.all_reduce(tensor, async_op=True)) for tensor in tensors]
    for tensor, work in running:
        work.wait()
        tensor /= world_size()


class SharedFlag:
    """Whether any process has raised a flag: the same answer for all processes at the same call.

    Each call starts one all-reduce of a number in host memory and reads the previous call's, which
    has long finished: no process waits for a device or for the slowest process. So the answer is
    one call late; a single process gets it at once.
    """

    def __init__(self) -> None:
        self._group: dist.ProcessGroup | None = None
        self._running: tuple[Tensor, dist.Work] | None = None  # a value and its all-reduce

    def raised(self, mine: bool) -> bool:
        if world_size() == 1:
            return mine
        if self._group is None:
            self._group = dist.new_group(backend="gloo")
        before, value = self._running, torch.tensor(int(mine))
        work = dist.all_reduce(value, dist.ReduceOp.MAX, group=self._group, async_op=True)
        self._running = value, work
        if before is None:
            return False
        before[1].wait()
        return bool(before[0])

    def close(self) -> None:
        """Wait for the pending all-reduce; all processes call it after as many calls."""
        if self._running is not None:
            self._running[1].wait()
            dist.destroy_process_group(self._group)
        self._group, self._running = None, None
