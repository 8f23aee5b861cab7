"""What several processes must agree on; the only file that imports torch.distributed.

DistributedDataParallel averages gradients over the W processes, as `average` does where it is not used. A loss that
every process computes whole, over vectors gathered with gradient, therefore comes out right as it is; a sum over local
tokens has to be multiplied by W.
"""

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.nn.functional import all_gather


def world_size() -> int:
    """Number of processes, 1 without a launcher."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def gather_with_gradient(local: Tensor) -> Tensor:
    """Rows of all processes in their order, (V, B, H) -> (V, N, H); gradient flows back to every process's rows."""
    return local if world_size() == 1 else torch.cat(all_gather(local.contiguous()), dim=1)


@torch.no_grad()
def gather_rows(local: Tensor) -> Tensor:
    """Rows of all processes in their order, without gradient: (B, D) -> (N, D)."""
    if world_size() == 1:
        return local
    parts = [torch.empty_like(local) for _ in range(world_size())]
    dist.all_gather(parts, local.contiguous())
    return torch.cat(parts)


def local_rows(everyone: Tensor) -> Tensor:
    """This process's part of gathered rows, (V, N, D) -> (V, B, D)."""
    return everyone if world_size() == 1 else everyone.chunk(world_size(), dim=1)[dist.get_rank()]


def means_over_tokens(totals: Sequence[Tensor], counts: Sequence[Tensor]) -> list[Tensor]:
    """Sums of local token losses over the tokens of all processes, scaled so that DDP's average is exact; one message.

    The mean of a returned value over the processes is the mean over all tokens.
    """
    if world_size() > 1 and counts:
        counts = sum_over_processes(torch.stack(list(counts))).unbind()
    return [total * world_size() / count.clamp(min=1) for total, count in zip(totals, counts, strict=True)]


@torch.no_grad()
def sum_over_processes(local: Tensor) -> Tensor:
    """The sum of every process's tensor, of the same shape."""
    everyone = local.clone()
    if world_size() > 1:
        dist.all_reduce(everyone)
    return everyone


@torch.no_grad()
def average(tensors: Iterable[Tensor]) -> None:
    """Replace every tensor by its mean over the processes; all must pass the same shapes in the same order."""
    if world_size() == 1:
        return
    running = [(tensor, dist.all_reduce(tensor, async_op=True)) for tensor in tensors]
    for tensor, work in running:
        work.wait()
        tensor /= world_size()


class SharedFlag:
    """Whether any process has raised a flag: the same answer for all at the same call, so that nobody goes on alone.

    Each call starts one all-reduce of a number in host memory and reads the one of the call before, which is long
    done: nobody waits for a device or for the slowest process. So the answer comes one call late; one process alone
    knows at once.
    """

    def __init__(self) -> None:
        self._group = self._running = None

    def raised(self, mine: bool) -> bool:
        if world_size() == 1:
            return mine
        if self._group is None:
            self._group = dist.new_group(backend="gloo")
        before, value = self._running, torch.tensor(int(mine))
        self._running = value, dist.all_reduce(value, dist.ReduceOp.MAX, group=self._group, async_op=True)
        if before is None:
            return False
        before[1].wait()
        return bool(before[0])

    def close(self) -> None:
        """Wait for what is still under way; to be called by all processes after the same number of calls."""
        if self._running is not None:
            self._running[1].wait()
            dist.destroy_process_group(self._group)
        self._group = self._running = None
