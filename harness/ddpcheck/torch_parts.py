"""torch.distributed and DistributedSampler as facets: parts that a torch implementation may take as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DistributedSampler

from .adapter import Group
from .torch_model import array_of, tensor_of
from .values import Array

_OPS = {
    "sum": dist.ReduceOp.SUM,
    "mean": dist.ReduceOp.SUM,  # divided afterwards: not every backend and version averages
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "prod": dist.ReduceOp.PRODUCT,
}


@dataclass
class Pending:
    """An all-reduce under way."""

    work: dist.Work
    tensor: Tensor
    divisor: int

    def wait(self) -> Array:
        self.work.wait()
        return array_of(self.tensor / self.divisor if self.divisor > 1 else self.tensor)


@dataclass
class TorchCollectives:
    """The collectives of torch.distributed over the default process group, and over sub-groups made when first used."""

    _groups: dict[tuple[int, ...], dist.ProcessGroup] = field(default_factory=dict)

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group | None = None) -> Array:
        return self.all_reduce_async(array, op, group=group).wait()

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group | None = None) -> Pending:
        tensor = self._tensor(array)
        work = dist.all_reduce(tensor, _op(op), group=self._group(group), async_op=True)
        assert work is not None  # torch gives None to ranks outside the group only
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
        # Not chunk(), which gives a single block when there are no rows.
        blocks = list(torch.split(tensor, len(tensor) // size)) if len(tensor) else [tensor] * size
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
        if group is None:
            return None
        ranks = tuple(group)
        if ranks not in self._groups:
            # Unless told to synchronise locally, new_group waits for ranks that are no members and never call it.
            made = dist.new_group(list(ranks), use_local_synchronization=True)
            if not isinstance(made, dist.ProcessGroup):
                raise ValueError(
                    f"rank {dist.get_rank()} is not in the group {ranks}: only members call its collectives"
                )
            self._groups[ranks] = made
        return self._groups[ranks]


def device_of_backend() -> torch.device:
    """Where the process group wants its tensors; the CPU where there is none."""
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
