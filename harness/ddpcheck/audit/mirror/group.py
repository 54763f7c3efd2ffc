"""A process group of M identical ranks, of which this process is rank 0: every rank would send the values of this
one.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as _c10d
from torch._C._distributed_c10d import HashStore
from torch.futures import Future

from ..recorded_process import Run

BACKEND = "ddpcheck_mirror"
_make_work: Any = vars(_c10d)["_create_work_from_future"]  # its stubs do not name it


def _done(value: Any) -> Any:
    future: Future[Any] = Future()
    future.set_result(value)
    return _make_work(future)


_Base: Any = dist.ProcessGroup  # its stubs are overloads that a group in Python cannot match


class _MirrorGroup(_Base):  # type: ignore[misc]
    """SUM multiplies by M, PRODUCT raises to the power of M, gathers give M copies; other calls change nothing."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._own_rank, self._own_size = rank, size

    def size(self) -> int:
        return self._own_size

    def rank(self) -> int:
        return self._own_rank

    def getBackendName(self) -> str:  # noqa: N802  # the name that c10d asks for
        return BACKEND

    @property
    def pg_name(self) -> str:
        return str(dist.distributed_c10d._world.pg_names[self])

    @property
    def group_name(self) -> str:
        return self.pg_name

    def _reduced(self, tensors: Any, op: Any) -> Any:
        kind = op.op if hasattr(op, "op") else op
        size = self._own_size
        for each in tensors:
            with torch.no_grad():
                if kind == dist.ReduceOp.SUM:
                    each.mul_(size)
                elif kind == dist.ReduceOp.PRODUCT:
                    each.pow_(size)
                elif kind == dist.ReduceOp.BXOR and size % 2 == 0:
                    each.zero_()
        return tensors

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        return _done(self._reduced(tensors, opts.reduceOp if opts is not None else dist.ReduceOp.SUM))

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Any, opts: Any) -> Any:
        return _done(self._reduced(tensors, opts.reduceOp))

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        return _done(tensors)

    def barrier(self, opts: Any = None) -> Any:
        return _done([])

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        with torch.no_grad():
            for those, own in zip(outputs, inputs, strict=True):
                for each in those:
                    each.copy_(own)
        return _done(outputs)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        with torch.no_grad():
            for those in outputs:
                for each, own in zip(those, inputs, strict=True):
                    each.copy_(own)
        return _done(outputs)

    def all_gather_single(self, output: Any, own: Any, opts: Any = None) -> Any:
        with torch.no_grad():
            for each in output.chunk(self._own_size) if self._own_size > 1 else [output]:
                each.copy_(own.reshape(each.shape))
        return _done([output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        for output, own in zip(outputs, inputs, strict=True):
            self.all_gather_single(output, own)
        return _done(outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        return self.allgather(outputs, inputs)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        with torch.no_grad():
            outputs[0].copy_(inputs[0][self._own_rank])
        return _done(outputs)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        with torch.no_grad():
            for output, those in zip(outputs, inputs, strict=True):
                output.copy_(those[self._own_rank])
        return _done(self._reduced(outputs, op))

    def reduce_scatter_single(self, output: Any, own: Any, opts: Any = None) -> Any:
        op = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        with torch.no_grad():
            output.copy_(own.chunk(self._own_size)[self._own_rank].reshape(output.shape))
        return _done(self._reduced([output], op))

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        for output, own in zip(outputs, inputs, strict=True):
            self.reduce_scatter_single(output, own, opts)
        return _done(outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        with torch.no_grad():
            for each in outputs:
                each.copy_(inputs[self._own_rank])
        return _done(outputs)

    def all_to_all_single(self, output: Any, own: Any, output_sizes: Any, input_sizes: Any, opts: Any = None) -> Any:
        sizes = list(input_sizes or []) or [own.shape[0] // self._own_size] * self._own_size
        start = sum(sizes[: self._own_rank])
        part = own[start : start + sizes[self._own_rank]]
        with torch.no_grad():
            output.copy_(torch.cat([part] * self._own_size))
        return _done([output])

    alltoall_base = all_to_all_single

    def send(self, tensors: Any, rank: int, tag: int = 0) -> Any:
        return _done(tensors)

    def recv(self, tensors: Any, rank: int, tag: int = 0) -> Any:
        return _done(tensors)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        return _done(tensors)


def start(init_process_group: Any, size: int) -> Any:
    """The mirror's own process group, for any request of the script."""
    return init_process_group(BACKEND, store=HashStore(), rank=0, world_size=size)


def install(run: Run) -> None:
    def create(store: Any, rank: int, size: int, timeout: Any) -> Any:
        return _MirrorGroup(rank, size)

    dist.Backend.register_backend(BACKEND, create, devices=["cpu", "cuda"])
