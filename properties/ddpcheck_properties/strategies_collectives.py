"""Hypothesis strategies for tensors, groups, collectives, samplers and metrics. Public, as those of strategies.py.

Values are chosen so that results are exact, and bits can be compared, wherever the operation allows it:

    sum, min, max   lattice values, small integers times a `step` that needs more bits than the next narrower dtype has
    mean            lattice values times a multiple of the group's size: the sum, and each term, divides without rounding
    prod            plus or minus 1 or 2; times a power of three if the dtype has room
"""

from __future__ import annotations

from functools import cache
from itertools import combinations, product
from typing import Literal

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from ddpcheck.contract import Capabilities
from ddpcheck.job import (
    Aggregate,
    AllGather,
    AllReduce,
    Barrier,
    Broadcast,
    Job,
    Layout,
    Operation,
    ReduceScatter,
    Sample,
    SendRecv,
    TensorSpec,
)
from ddpcheck.seeded_values import Kind

from .strategies import SEEDS, choice

Reduction = Literal["sum", "mean", "min", "max", "prod"]
Shape = tuple[int, ...]
Group = tuple[int, ...] | None

ALL_REDUCTIONS: tuple[Reduction, ...] = ("sum", "mean", "min", "max", "prod")
LAYOUTS: tuple[Layout, ...] = ("C", "F", "strided", "reversed", "offset", "columns")
EVERY_LAYOUT: tuple[Layout, ...] = (*LAYOUTS, "repeated", "mixed")
WIDE = {"float32": 2**12 + 1, "float64": 2**24 + 1, "int32": 2**24 + 1, "int64": 2**54 + 1}
"""Steps whose multiples need more bits than float16 and bfloat16, float32, float32, and float64 have."""


def floating(dtype: str) -> bool:
    return np.dtype(dtype).kind == "f"


def dtypes(capabilities: Capabilities, *, floats: bool = False) -> tuple[str, ...]:
    """The promised dtypes of collectives; `floats`: the floating ones only."""
    return tuple(sorted(d for d in capabilities.collectives.dtypes if floating(d) or not floats))


def usual_dtype(capabilities: Capabilities, *, floats: bool = False) -> str:
    """float32, or another promised dtype of collectives; `floats`: a floating one."""
    return min(dtypes(capabilities, floats=floats), key=lambda dtype: dtype != "float32")


def reductions(capabilities: Capabilities) -> tuple[Reduction, ...]:
    """The promised reductions; a mean only with floating dtypes."""
    asked = (
        capabilities.collectives.reductions
        if dtypes(capabilities, floats=True)
        else capabilities.collectives.reductions - {"mean"}
    )
    return tuple(reduction for reduction in ALL_REDUCTIONS if reduction in asked)


def fitting_reductions(capabilities: Capabilities, dtype: str) -> list[Reduction]:
    """The promised reductions that a dtype allows: no means of integers."""
    found: list[Reduction] = []
    for reduction in reductions(capabilities):
        if reduction != "mean" or floating(dtype):
            found.append(reduction)  # noqa: PERF401  # a comprehension loses the literal's type in pyright
    return found


def every_dtype(capabilities: Capabilities) -> list[tuple[str, Reduction]]:
    """Each promised dtype with each reduction that it allows."""
    found: list[tuple[str, Reduction]] = []
    for dtype in dtypes(capabilities):
        for each in fitting_reductions(capabilities, dtype):
            found.append((dtype, each))  # noqa: PERF401  # a comprehension loses the literal's type in pyright
    return found


def every_dtype_laid_out(capabilities: Capabilities) -> list[tuple[str, Reduction, Layout]]:
    """Each promised dtype with each reduction that it allows, and every layout at least once."""
    pairs = every_dtype(capabilities)
    count = max(len(pairs), len(EVERY_LAYOUT)) if pairs else 0
    return [(*pairs[number % len(pairs)], EVERY_LAYOUT[number % len(EVERY_LAYOUT)]) for number in range(count)]


def extremes(capabilities: Capabilities, size: int) -> list[tuple[TensorSpec, Reduction]]:
    """The ends of each promised integer dtype: the lowest has no negative counterpart, and sums wrap around."""
    return [
        (TensorSpec((size,), dtype, "special", 6), each)
        for dtype in dtypes(capabilities)
        for each in reductions(capabilities)
        if not floating(dtype) and each not in ("mean", "prod")
    ]


def usual_reduction(capabilities: Capabilities, dtype: str) -> Reduction:
    """A promised reduction that the dtype allows."""
    found = fitting_reductions(capabilities, dtype)
    return found[0] if found else "sum"


@cache
def shapes(world_size: int) -> tuple[Shape, ...]:
    """1 to W + 2 elements, no dimension, no element, several dimensions, and sizes that W and chunks do not divide; one
    of those first, for the clearest message.
    """
    few = [(size,) for size in (2 * world_size + 1, *range(1, world_size + 3))]
    several: list[Shape] = [(1, 7), (2, 1, 3), (2, 3, 2), (2, 3, 1, 2, 2), (3, 2), (world_size, 3), (world_size + 1, 2)]
    return (*few, (), (0,), (0, 3), (3, 0), *several, (17,), (31,), (64,), (4 * world_size + 1,), (129,), (*[1] * 8, 3))


def parts(world_size: int) -> tuple[tuple[int, ...], ...]:
    """Every group of several ranks, but not of all ranks; all ranks, if there are only two."""
    return tuple(group for group in subsets(world_size) if 1 < len(group) < max(3, world_size))


@cache
def subsets(world_size: int) -> tuple[tuple[int, ...], ...]:
    """Every group of ranks, smallest first."""
    return tuple(group for size in range(1, world_size + 1) for group in combinations(range(world_size), size))


def exact_tensor(
    shape: Shape, dtype: str, reduction: str, size: int, seed: int = 0, layout: Layout = "C", *, wide: bool = True
) -> TensorSpec:
    """A tensor whose reduction over `size` ranks is exact in its dtype."""
    if reduction == "prod":
        # odd factors with more bits in all than the next narrower dtype has, and no more than this one holds
        held = {"float32": 23, "float64": 52, "int64": 61 - size}.get(dtype, 0)
        step = 3 ** (int(held / 1.585) // size) if wide else 1
        return TensorSpec(shape, dtype, "powers", seed, layout, step=step)
    step = WIDE.get(dtype, 1) if wide else 1
    return TensorSpec(shape, dtype, "lattice", seed, layout, step=step * size if reduction == "mean" else step)


@st.composite
def tensors(draw: DrawFn, world_size: int, offered: tuple[str, ...], values: Kind) -> TensorSpec:
    """A tensor of one of the dtypes, in any shape and any layout."""
    dtype, layout = draw(choice(tuple(product(offered, LAYOUTS))))
    return TensorSpec(draw(choice(shapes(world_size))), dtype, values, draw(SEEDS), layout)


@st.composite
def all_reduces(
    draw: DrawFn,
    world_size: int,
    capabilities: Capabilities,
    *,
    among: tuple[Reduction, ...] = (),
    groups: tuple[Group, ...] = (None,),
    wait: bool = True,
) -> AllReduce:
    """An exact all-reduce with one of the promised reductions (or of `among`)."""
    reduction, group, wide = draw(choice(tuple(product(among or reductions(capabilities), groups, (True, False)))))
    offered = dtypes(capabilities, floats=reduction == "mean")
    dtype, layout = draw(choice(tuple(product(offered, LAYOUTS))))
    shape = draw(choice(shapes(world_size)))
    size = world_size if group is None else len(group)
    return AllReduce(
        exact_tensor(shape, dtype, reduction, size, draw(SEEDS), layout, wide=wide), reduction, group, wait
    )


@st.composite
def reduce_scatters(
    draw: DrawFn, world_size: int, capabilities: Capabilities, groups: tuple[Group, ...]
) -> ReduceScatter:
    """An exact reduce-scatter; the first dimension is 0, 1, 2 or 3 times the size of the group."""
    offered: list[tuple[Reduction, str]] = [
        (reduction, dtype)
        for reduction in reductions(capabilities)
        for dtype in dtypes(capabilities, floats=reduction == "mean")
    ]
    group, (reduction, dtype) = draw(choice(tuple(product(groups, offered))))
    size = world_size if group is None else len(group)
    rows, rest, layout = draw(choice(tuple(product((1, 2, 3, 0), ((), (3,), (2, 2), (0,)), LAYOUTS))))
    return ReduceScatter(
        exact_tensor((rows * size, *rest), dtype, reduction, size, draw(SEEDS), layout), reduction, group
    )


@st.composite
def broadcasts(draw: DrawFn, world_size: int, capabilities: Capabilities, groups: tuple[Group, ...]) -> Broadcast:
    """A broadcast of any values from any root."""
    group = draw(choice(groups))
    root = draw(choice(tuple(range(world_size)) if group is None else group))
    return Broadcast(draw(_moved(world_size, capabilities)), root, group)


@st.composite
def all_gathers(draw: DrawFn, world_size: int, capabilities: Capabilities, groups: tuple[Group, ...]) -> AllGather:
    """An all-gather of any values."""
    return AllGather(draw(_moved(world_size, capabilities)), draw(choice(groups)))


@st.composite
def send_recvs(draw: DrawFn, world_size: int, capabilities: Capabilities) -> SendRecv:
    """One to four messages between pairs of ranks, which may repeat."""
    pairs = tuple((a, b) for a in range(world_size) for b in range(world_size) if a != b)
    taken = tuple(draw(choice(pairs)) for _ in range(draw(choice((1, 2, 4)))))
    return SendRecv(draw(_moved(world_size, capabilities)), tuple(dict.fromkeys(taken)))


def collectives(
    world_size: int, capabilities: Capabilities, *, groups: tuple[Group, ...] = (None,)
) -> SearchStrategy[Operation]:
    """One promised collective of any kind."""
    offered: dict[str, SearchStrategy[Operation]] = {
        "all_reduce": all_reduces(world_size, capabilities, groups=groups),
        "broadcast": broadcasts(world_size, capabilities, groups),
        "all_gather": all_gathers(world_size, capabilities, groups),
        "reduce_scatter": reduce_scatters(world_size, capabilities, groups),
        "barrier": st.builds(Barrier, choice(groups)),
    }
    if world_size > 1 and groups == (None,):
        offered["send_recv"] = send_recvs(world_size, capabilities)
    return st.one_of([strategy for name, strategy in offered.items() if name in capabilities.collectives.operations])


def jobs(world_size: int, operation: SearchStrategy[Operation], least: int = 1, most: int = 3) -> SearchStrategy[Job]:
    """Jobs of a few operations; none if there are no such operations, such as send_recv() on a single rank."""
    if operation.is_empty:
        return st.nothing()
    operations = st.lists(operation, min_size=least, max_size=most)
    return operations.map(lambda drawn: Job(world_size, tuple(drawn)))


@st.composite
def samples(
    draw: DrawFn,
    world_size: int,
    capabilities: Capabilities,
    *,
    drop_last: bool = False,
    epochs: tuple[tuple[int | None, ...], ...] = ((0,), (1,), (0, 1), (None, None), (5, None)),
) -> Sample:
    """A sampler of a length around a multiple of the world size, shuffled or not, and read for some epochs."""
    offered = sample_lengths(world_size, capabilities)
    length, shuffles, read = draw(choice(tuple(product(offered, (True, False), epochs))))
    return Sample(length, read, shuffles, draw(SEEDS), drop_last)


@cache
def sample_lengths(world_size: int, capabilities: Capabilities) -> tuple[int, ...]:
    """0 to W + 1, without refused lengths, and a few larger ones on both sides of a multiple of W."""
    larger = [multiple * world_size + more for multiple in (2, 3, 10) for more in (-1, 0, 1)]
    least = world_size if capabilities.sampler.few_samples == "refused" else 0
    return tuple(sorted({*range(least, world_size + 2), *larger}))


@st.composite
def aggregates(draw: DrawFn, world_size: int) -> Aggregate:
    """Integer means, including 0, over counts whose total is a power of two: their weighted mean is exact."""
    counts = [draw(choice((1, 0, 2, 3, 5, 7))) for _ in range(world_size - 1)]
    total = 1
    while total < sum(counts) + 1:
        total *= 2
    place = draw(choice(tuple(range(world_size))))
    counts.insert(place, total - sum(counts))
    values = tuple(float(draw(choice((1, -2, 3, 6, -11, -rank)))) + rank for rank in range(world_size))
    return Aggregate(values, tuple(counts))


@cache
def _moved(world_size: int, capabilities: Capabilities) -> SearchStrategy[TensorSpec]:
    """Data that is only moved may hold any bits."""
    offered = dtypes(capabilities)
    return st.one_of(tensors(world_size, offered, "special"), tensors(world_size, offered, "lattice"))
