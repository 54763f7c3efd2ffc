"""All-reduce into the argument itself: what training engines call on their buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck.checks import law
from ddpcheck.job import AllReduce, Job, TensorSpec

from .collective_judges import results_hold, same_bits_everywhere
from .collectives import PAST_64_KIB
from .drawing import for_each
from .strategies_collectives import dtypes, exact_tensor, fitting_reductions, usual_reduction
from .ways import SIZES

if TYPE_CHECKING:
    from ddpcheck.session import Session

LARGE = ((1000, 7), (521, 521), (3, 262_144))
"""Past 16 KiB, and in float32 past 1 MiB and 3 MiB, of which nothing divides the first two."""


@law("collectives", "collective:all_reduce", "in_place")
def check_all_reduce_in_place_is_exact(session: Session) -> None:
    """In place as into a new array: of each size, shape, dtype and reduction, in groups, and beside other calls."""
    world, promised = session.world_size, session.capabilities
    drawn = []
    for dtype in dtypes(promised):
        usual = usual_reduction(promised, dtype)
        sizes = SIZES if dtype == "float32" else SIZES[::5]
        shapes = [(), (0,), *((size,) for size in sizes), *(LARGE if dtype == "float32" else LARGE[:1])]
        reduced = [
            AllReduce(exact_tensor(shape, dtype, usual, world, seed), usual, in_place=True)
            for seed, shape in enumerate(shapes)
        ]
        reduced += [
            AllReduce(exact_tensor(shape, dtype, each, world, 3), each, in_place=place)
            for each in fitting_reductions(promised, dtype)
            for shape, place in (((5, 9), True), ((5, 9), False), (PAST_64_KIB, True))
            if shape != PAST_64_KIB or dtype == "float32"
        ]
        if promised.subgroups and world > 1:
            rest = tuple(range(1, world))
            reduced += [
                AllReduce(exact_tensor(shape, dtype, usual, len(rest), 4), usual, rest, in_place=True)
                for shape in ((70,), PAST_64_KIB)
            ]
        drawn.append(Job(world, tuple(reduced)))
    for_each(session, drawn, results_hold)


@law("collectives", "collective:all_reduce", "in_place", "same_bits_on_all_ranks", "world_size>=2")
def check_all_reduce_in_place_gives_all_ranks_the_same_bits(session: Session) -> None:
    """Real values reduced in place give every rank the same bits, whatever the size."""
    world, promised = session.world_size, session.capabilities
    dtype = next(iter(dtypes(promised, floats=True)), dtypes(promised)[0])
    usual = usual_reduction(promised, dtype)
    reduced = tuple(
        AllReduce(TensorSpec(shape, dtype, "real", seed), usual, in_place=True)
        for seed, shape in enumerate([(1,), (100,), (3001,), *LARGE])
    )
    for_each(session, [Job(world, reduced)], same_bits_everywhere)
