"""Measuring operations. Clocks are read on the ranks, so the control channel is not measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..storage.dataclass_json import plain

Collective = Literal["all_reduce", "broadcast", "all_gather", "reduce_scatter", "send_recv", "barrier"]


@plain
@dataclass(frozen=True, slots=True)
class MeasureCollective:
    """Call a collective repeatedly, after a barrier each time.

    count: elements of the whole array: the array that is reduced or sent, all that all_gather collects, or all that
    reduce_scatter distributes; for these two, each rank has count / world size. in_place: all_reduce_in_place on an
    array from empty(), which holds zeros during the measurement. One iteration is `calls` consecutive calls.

    Yields begin and end: float64 (iterations,), seconds of time.monotonic(); wrong: the number of elements that are not
    exactly right, before and after the measurement (once with iterations=0, which measures nothing); cpu: seconds of
    processor time over all iterations; queued: seconds that this thread waited for a core, or None; counts: the result
    of Facets.counts for one call, or None; sent: without Facets.counts, the bytes that this rank sent over TCP in one
    call, as its kernel counts them, else None.
    """

    kind: ClassVar[str] = "measure_collective"
    collective: Collective
    count: int
    dtype: str = "float32"
    in_place: bool = False
    warmups: int = 2
    iterations: int = 10
    calls: int = 1


@plain
@dataclass(frozen=True, slots=True)
class MeasureSteps:
    """Training steps (zero_grad, backward, step) on one batch, with the Job's model, optimizer and data.

    synced=False: backward in no_sync(), the same work without communication. options: (name, value) pairs for
    make_replica. Consecutive operations with equal options share a replica; all other operations have no options.
    named: one of Adapter.named_models, in place of the Job's model, which then only gives inputs and outputs.

    Yields begin, backward_end and end: float64 (iterations,), seconds of time.monotonic(); cpu and queued as in
    MeasureCollective, over all steps; peak: the largest resident memory since the process began, in KiB; counts: the
    result of Facets.counts for all steps together, or None; sent as in MeasureCollective, for all steps together;
    timeline: (name, begin, end) of the last step, if ReplicaMethod.TIMELINE.
    """

    kind: ClassVar[str] = "measure_steps"
    samples: tuple[tuple[int, ...], ...]
    synced: bool = True
    warmups: int = 3
    iterations: int = 10
    options: tuple[tuple[str, float | str], ...] = ()
    named: str | None = None
