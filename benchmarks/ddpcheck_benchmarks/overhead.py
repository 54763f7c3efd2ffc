"""Overhead of the harness: the same step and the same all-reduce, timed by the harness and by hand, in turns.

    torchrun --nproc-per-node 2 -m ddpcheck_benchmarks.overhead step
    mpiexec -n 2 python -m ddpcheck_benchmarks.overhead all-reduce

By hand, a rank's program uses only torch or mpi4py, and a clock. The other side is the harness's program of a rank,
with an adapter. Bursts go A B B A in the same processes, so that both use the same memory and cores. A burst's time is
the median over its iterations of the slowest rank's; the ratio is the median over pairs of bursts, with its 95 %
interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click
import numpy as np

from ddpcheck.contract.adapter import Batch
from ddpcheck.contract.rank_context import RankContext, rank_context
from ddpcheck.execution.timing import measured_collective, measured_steps, pattern
from ddpcheck.operations.timing import MeasureCollective
from ddpcheck.running.adapter_lookup import resolve
from ddpcheck.seeded_values import Array

from .interleaved_runs import in_turns
from .rank_times import Floats
from .sizes import named
from .stats import interval
from .step_cases import RATE, StepCase

_SIZES = (4, 64 << 10, 25 << 20)
_WARMUPS, _STEPS, _CALLS = 5, 20, 100
_BURST_BYTES = 250 << 20

Burst = Callable[[], Floats]
"""Returns the seconds of each iteration on this rank."""


@click.command()
@click.argument("what", type=click.Choice(["step", "all-reduce"]))
@click.option("--pairs", default=40, show_default=True, help="Bursts of each side.")
def main(what: str, pairs: int) -> None:
    """Print harness / by hand for a torch DDP step, or for an MPI all-reduce in place at 4 B, 64 KiB and 25 MiB."""
    context = rank_context()
    for title, by_hand, harness, largest in (_steps if what == "step" else _all_reduces)(context):
        one, other = (partial(_time_of, burst, largest) for burst in (by_hand, harness))
        in_turns(one, other, 1)  # the first measurement of a process differs
        both = in_turns(one, other, pairs)
        if context.rank == 0:
            ratios = [ours / theirs for theirs, ours in both]
            low, high = interval(ratios)
            theirs, ours = np.median(both, axis=0) * 1e6
            click.echo(
                f"{title:<22} harness {ours:10.2f} µs, by hand {theirs:10.2f} µs, "
                f"ratio {np.median(ratios):.3f} [{low:.3f}, {high:.3f}]"
            )


def _time_of(burst: Burst, largest: Callable[[Floats], Floats]) -> float:
    return float(np.median(largest(burst())))


Comparison = tuple[str, Burst, Burst, Callable[[Floats], Floats]]
"""Title, the burst by hand, the harness's, and the element-wise maximum over the ranks."""


def _steps(context: RankContext) -> Iterator[Comparison]:
    import torch
    from torch import distributed, nn
    from torch.nn.parallel import DistributedDataParallel

    facets = resolve("torch_ddp")[0].connect(context)
    assert facets.make_replica is not None
    case = StepCase("torch_ddp", context.world_size, "small", "weak")
    operation = case.steps(_WARMUPS, _STEPS)
    job = case.job([operation])
    assert job.model is not None
    assert job.data is not None
    inputs, labels = (array[list(operation.samples[context.rank])] for array in job.data.arrays(job.model))
    initial = job.initial(context.rank)
    replica = facets.make_replica(job.model, initial, job.optimizer, {})
    batch = Batch(inputs, labels)

    module = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    with torch.no_grad():  # with other values the same step takes 2 % less time: more neurons are zero
        for parameter, value in zip(module.parameters(), initial.values(), strict=True):
            parameter.copy_(torch.from_numpy(value))
    model = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.5)
    given, wanted = torch.from_numpy(inputs), torch.from_numpy(labels)

    def step() -> None:
        optimizer.zero_grad()
        loss: Any = nn.functional.cross_entropy(model(given), wanted)
        loss.backward()
        optimizer.step()

    def largest(seconds: Floats) -> Floats:
        found = torch.from_numpy(seconds)
        distributed.all_reduce(found, distributed.ReduceOp.MAX)
        return seconds

    yield (
        "torch DDP step",
        partial(_by_hand, lambda: None, step, _STEPS, 1),
        lambda: _seconds(measured_steps(replica, None, operation, batch)),
        largest,
    )


class _Bare:
    """An adapter whose collectives are bare calls of mpi4py. `array` is the only array that it makes."""

    def __init__(self, comm: Any, in_place: Any, array: Array) -> None:
        self.barrier = comm.Barrier
        self.empty = lambda shape, dtype: array
        self.all_reduce_in_place = partial(comm.Allreduce, in_place)


def _all_reduces(context: RankContext) -> Iterator[Comparison]:
    from mpi4py import MPI

    comm: Any = MPI.COMM_WORLD

    def largest(seconds: Floats) -> Floats:
        comm.Allreduce(MPI.IN_PLACE, seconds, MPI.MAX)
        return seconds

    for size in _SIZES:
        calls = _CALLS if size < 1 << 20 else 1
        iterations = max(5, min(_STEPS, _BURST_BYTES // size // calls))
        operation = MeasureCollective("all_reduce", size // 4, "float32", True, _WARMUPS, iterations, calls)

        array = np.empty(size // 4, np.float32)
        bare = _Bare(comm, MPI.IN_PLACE, array)
        call = partial(comm.Allreduce, MPI.IN_PLACE, array)

        def by_hand(
            array: Array = array, call: partial[None] = call, operation: MeasureCollective = operation
        ) -> Floats:
            """Measured after a sum that was checked, as in the harness: MPI's memory and the array's values change
            times by up to 10 %.
            """
            own = pattern(array.size, context.rank, "float32")
            array[:] = own
            call()
            wrong = int(
                np.count_nonzero(array != sum(pattern(array.size, rank, "float32") for rank in range(comm.size)))
            )
            assert not wrong
            array.fill(0)
            return _by_hand(comm.Barrier, call, operation.iterations, operation.calls)

        def harness(operation: MeasureCollective = operation, bare: _Bare = bare) -> Floats:
            values = measured_collective(bare, None, operation, context.rank, context.world_size)
            return _seconds(values, operation.calls)

        yield f"MPI all-reduce, {named(size)}", by_hand, harness, largest


def _by_hand(meet: Callable[[], object], call: Callable[[], object], iterations: int, calls: int) -> Floats:
    """Timed as in a script: a clock before, a clock after."""
    found = np.empty(iterations)
    for iteration in range(-_WARMUPS, iterations):
        meet()
        began = time.perf_counter()
        for _ in range(calls):
            call()
        if iteration >= 0:
            found[iteration] = time.perf_counter() - began
    return found / calls


def _seconds(values: dict[str, Any], calls: int = 1) -> Floats:
    seconds: Floats = (values["end"] - values["begin"]) / calls
    return seconds


if __name__ == "__main__":
    main()
