"""Each rank passes an array of another memory layout, so an algorithm chosen by layout differs between ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.checks import law
from ddpcheck.contract import CallForm, Capabilities, needs
from ddpcheck.job import AllGather, AllReduce, Broadcast, Job, Operation, ReduceScatter, SendRecv, TensorSpec, Wait
from ddpcheck.operations.data import VARIED

from ..drawing import for_each
from ..strategies_collectives import exact_tensor
from .all_reduce import PAST_64_KIB
from .call_forms import usual
from .comparison import results_hold

if TYPE_CHECKING:
    from ddpcheck.session import Session

SMALL = (6, 5)
"""Two dimensions, so that Fortran order and C order differ."""


@law("collectives", needs.collectives, needs.ranks(2, most=3))
def check_memory_layouts_may_differ_between_ranks(session: Session) -> None:
    """Ranks may pass arrays of different memory layouts to one call. Each collective is correct, for small arrays and past
    64 KiB, in a group, and asynchronously.
    """
    shapes = [SMALL] * len(VARIED) + [PAST_64_KIB] * 3  # with two ranks, each layout meets the next one
    jobs = [_each_way(session, shape, seed) for seed, shape in enumerate(shapes)]
    for_each(session, [job for job in jobs if job.operations], results_hold)


def _each_way(session: Session, shape: tuple[int, int], seed: int) -> Job:
    """Each promised collective on arrays of this shape; the seed chooses the layouts."""
    world, promised = session.world_size, session.capabilities
    dtype, reduction = usual(promised)
    reduced = exact_tensor(shape, dtype, reduction, world, seed, "varied")
    moved = TensorSpec(shape, dtype, "special", seed, "varied")
    rows = exact_tensor((shape[0] * world, shape[1]), dtype, reduction, world, seed, "varied")
    ends = ((0, world - 1), (world - 1, 0))
    made: list[Operation] = [AllReduce(reduced, reduction), AllGather(moved), Broadcast(moved, seed % world)]
    made += [ReduceScatter(rows, reduction), SendRecv(moved, ends)]
    made = [each for each in made if each.kind in promised.collectives.operations]
    return Job(world, (*made, *_in_groups_and_later(promised, reduced, world, len(made))))


def _in_groups_and_later(promised: Capabilities, tensor: TensorSpec, world: int, before: int) -> list[Operation]:
    if "all_reduce" not in promised.collectives.operations:
        return []
    _, reduction = usual(promised)
    found: list[Operation] = []
    if promised.has(CallForm.SUBGROUPS):
        found.append(AllReduce(tensor, reduction, tuple(range(world))))
    if promised.has(CallForm.ASYNCHRONOUS):
        found += [AllReduce(tensor, reduction, wait=False), Wait(before + len(found))]
    return found
