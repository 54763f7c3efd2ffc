"""The communication of data-parallel training, over torch.distributed: start, broadcast, all-reduce."""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist
from torch import Tensor

OPS = {
    "sum": dist.ReduceOp.SUM,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "prod": dist.ReduceOp.PRODUCT,
}


def start() -> None:
    """Join the process group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe, as torchrun sets them."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))


def world_size() -> int:
    return dist.get_world_size()


def broadcast(tensor: Tensor, root: int = 0) -> None:
    """Overwrite the tensor with the root's tensor."""
    dist.broadcast(tensor, root)


def all_reduce(tensor: Tensor, op: str = "sum") -> None:
    """Overwrite the tensor with the reduction over all ranks."""
    dist.all_reduce(tensor, OPS[op])


def start_all_reduce(tensor: Tensor) -> dist.Work:
    """Start a sum over all ranks, and return at once. Do not use the tensor before wait() on the returned handle."""
    work: dist.Work | None = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    return work


def all_reduce_mean(tensor: Tensor) -> None:
    """Overwrite the tensor with the mean over all ranks."""
    all_reduce(tensor)
    tensor /= world_size()
