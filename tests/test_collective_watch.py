"""The watch over asynchronous collectives of torch.distributed: what it tells, and that it leaves torch as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from ddpcheck.execution import watched_collectives
from ddpcheck.pytorch.collective_watch import CollectiveWatch
from ddpcheck.pytorch.pending_collectives import AWAITING


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process."""
    dist.init_process_group("gloo", store=c10d.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def started(tensor: torch.Tensor) -> dist.Work:
    handle = dist.all_reduce(tensor, async_op=True)
    assert isinstance(handle, dist.Work)
    return handle


def told(watch: CollectiveWatch) -> list[tuple[str, str]]:
    return [(how, collective) for how, collective, *_ in watch.end()]


@pytest.mark.usefixtures("alone")
def test_an_awaited_collective_whose_tensor_is_left_alone_is_right() -> None:
    flat = torch.zeros(8)
    watch = CollectiveWatch()
    first = started(flat[:4])
    flat[4:].fill_(1.0)  # another part of the same memory
    second = started(flat[4:])
    first.wait()
    flat[:4].div_(2)
    second.wait()
    assert told(watch) == []


@pytest.mark.usefixtures("alone")
def test_a_write_to_the_tensor_is_told_with_both_lines() -> None:
    flat = torch.zeros(8)
    watch = CollectiveWatch()
    handle = started(flat[:4])
    torch.cat([torch.ones(2), torch.ones(2)], out=flat[2:6])
    handle.wait()
    ((how, collective, begun, seen),) = watch.end()
    assert (how, collective) == ("changed", "all_reduce")
    assert begun.startswith(__file__)
    assert seen.startswith(__file__)
    assert begun != seen


@pytest.mark.usefixtures("alone")
def test_tensors_without_memory_of_their_own_are_no_matter() -> None:
    flat, sparse = torch.zeros(8), torch.eye(3).to_sparse()
    watch = CollectiveWatch()
    handle = started(flat)
    sparse.mul_(2)
    torch.zeros(0).add_(1)
    handle.wait()
    assert told(watch) == []


@pytest.mark.usefixtures("alone")
def test_a_handle_that_is_dropped_is_told() -> None:
    watch = CollectiveWatch()
    started(torch.zeros(4))
    started(torch.zeros(4)).is_completed()  # asked, so that the program knows
    assert told(watch) == [("unawaited", "all_reduce")]


@pytest.mark.usefixtures("alone")
def test_the_watch_leaves_no_trace() -> None:
    owners = {dist.ProcessGroup: ("allreduce", "broadcast"), dist.Work: AWAITING}
    before = {(owner, name): vars(owner)[name] for owner, names in owners.items() for name in names}
    assert watched_collectives.watch() == {"watched": True, "found": []}
    assert all(vars(owner)[name] is not value for (owner, name), value in before.items())
    assert watched_collectives.end() == {"watched": True, "found": []}
    assert all(vars(owner)[name] is value for (owner, name), value in before.items())
    dist.broadcast(torch.zeros(2), 0)
    started(torch.zeros(4))  # nobody watches
    assert watched_collectives.end() == {"watched": False, "found": []}


def test_without_a_process_group_nothing_is_watched() -> None:
    assert watched_collectives.watch() == {"watched": False, "found": []}
