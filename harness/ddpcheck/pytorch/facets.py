"""torch.distributed and DistributedSampler as facets, which a torch implementation may use unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DistributedSampler

from ..contract.adapter import Group
from ..seeded_values import Array
from .model import array_of, tensor_of
from .version import torch_at_least

_OPS = {
    "sum": dist.ReduceOp.SUM,
    "mean": dist.ReduceOp.SUM,  # divided afterwards: not every backend and version can average
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "prod": dist.ReduceOp.PRODUCT,
}

_GLOO_CANNOT_SCATTER = not torch_at_least(2, 8)  # reduce_scatter_tensor of older versions sums for any reduction

_TAG = 7919  # separates messages of Groups from those of send()


@dataclass
class Pending:
    """A pending all-reduce."""

    work: dist.Work
    tensor: Tensor
    divisor: int

    def wait(self) -> Array:
        self.work.wait()
        return array_of(self.tensor / self.divisor if self.divisor > 1 else self.tensor)


@dataclass
class Groups:
    """Sub-groups that only their members make, at first use. For torch's usual new_group all ranks must call.

    torch names such a group by its ranks and the number of groups that the process has made: members with different
    numbers would wait for each other for ever (pytorch issue 173608). So members first exchange their numbers, and each
    makes groups of its own until it has the largest number.
    """

    made: int = 0
    groups: dict[tuple[int, ...], dist.ProcessGroup] = field(default_factory=dict)

    def of(self, ranks: tuple[int, ...]) -> dist.ProcessGroup:
        if ranks not in self.groups:
            own = dist.get_rank()
            if own not in ranks:
                raise ValueError(f"rank {own} is not in the group {ranks}: only members call its collectives")
            largest = self._largest_number([rank for rank in ranks if rank != own])
            while self.made < largest:
                self._make((own,))
            self.groups[ranks] = self._make(ranks)
        return self.groups[ranks]

    def _make(self, ranks: tuple[int, ...]) -> dist.ProcessGroup:
        self.made += 1
        return cast(dist.ProcessGroup, dist.new_group(list(ranks), use_local_synchronization=True))

    def _largest_number(self, others: list[int]) -> int:
        number = torch.tensor([self.made], device=device_of_backend())
        theirs = [torch.empty_like(number) for _ in others]
        operations = [dist.P2POp(dist.isend, number, rank, tag=_TAG) for rank in others]
        operations += [
            dist.P2POp(dist.irecv, buffer, rank, tag=_TAG) for buffer, rank in zip(theirs, others, strict=True)
        ]
        if operations:
            for work in dist.batch_isend_irecv(operations):
                work.wait()
        return max(int(buffer) for buffer in (number, *theirs))


@dataclass
class TorchCollectives:
    """The collectives of torch.distributed over the default process group, and over sub-groups made when first used."""

    _groups: Groups = field(default_factory=Groups)

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group | None = None) -> Array:
        return self.all_reduce_async(array, op, group=group).wait()

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group | None = None) -> Pending:
        tensor = self._tensor(array)
        work = dist.all_reduce(tensor, _op(op), group=self._group(group), async_op=True)
        assert work is not None  # torch returns None only to ranks outside the group
        return Pending(work, tensor, self._size(group) if op == "mean" else 1)

    def broadcast(self, array: Array, root: int = 0, *, group: Group | None = None) -> Array:
        tensor = self._tensor(array)
        dist.broadcast(tensor, root, group=self._group(group))
        return array_of(tensor)

    def all_gather(self, array: Array, *, group: Group | None = None) -> Array:
        tensor = self._tensor(array)
        gathered = [torch.empty_like(tensor) for _ in range(self._size(group))]
        dist.all_gather(gathered, tensor, group=self._group(group))
        return array_of(torch.stack(gathered))

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group | None = None) -> Array:
        size = self._size(group)
        tensor = self._tensor(array)
        # not chunk(), which returns a single block if there are no rows
        blocks = list(torch.split(tensor, len(tensor) // size)) if len(tensor) else [tensor] * size
        if _GLOO_CANNOT_SCATTER and dist.get_backend() == "gloo":
            own = dist.get_rank(self._group(group))
            return self.all_reduce(array, op, group=group)[own * len(blocks[0]) :][: len(blocks[0])]
        result = torch.empty_like(blocks[0])
        dist.reduce_scatter(result, blocks, _op(op), group=self._group(group))
        return array_of(result / size if op == "mean" else result)

    def barrier(self, *, group: Group | None = None) -> None:
        dist.barrier(group=self._group(group))

    def send(self, array: Array, dest: int) -> None:
        dist.send(self._tensor(array), dest)

    def recv(self, array: Array, source: int) -> Array:
        tensor = self._tensor(array)
        dist.recv(tensor, source)
        return array_of(tensor)

    def _tensor(self, array: Array) -> Tensor:
        return tensor_of(array).to(device_of_backend())

    def _size(self, group: Group | None) -> int:
        return dist.get_world_size() if group is None else len(group)

    def _group(self, group: Group | None) -> dist.ProcessGroup | None:
        return None if group is None else self._groups.of(tuple(group))


def device_of_backend() -> torch.device:
    """The device that the process group needs for tensors; the CPU without a process group."""
    return torch.device("cuda" if dist.is_initialized() and dist.get_backend() == "nccl" else "cpu")


def _op(name: str) -> dist.ReduceOp.RedOpType:
    try:
        return _OPS[name]
    except KeyError:
        raise ValueError(f"no reduction {name!r}; choose one of {', '.join(_OPS)}") from None


def make_sampler(length: int, *, shuffle: bool, seed: int, drop_last: bool) -> DistributedSampler[int]:
    """Torch's DistributedSampler for this rank."""
    return DistributedSampler(range(length), shuffle=shuffle, seed=seed, drop_last=drop_last)  # type: ignore[arg-type]


def aggregate_metrics(metrics: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Means over all samples of all ranks: local means weighted by their counts, in one all-reduce."""
    names = sorted(metrics)
    weighted = [metrics[name] * count if count else 0.0 for name in names]
    sums = torch.tensor([count, *weighted], dtype=torch.float64, device=device_of_backend())
    dist.all_reduce(sums)
    total, *summed = sums.tolist()
    return {name: value / total if total else float("nan") for name, value in zip(names, summed, strict=True)}
