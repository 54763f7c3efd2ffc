"""Measuring operations. They read the clock on the ranks, so the control channel is not measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..storage.dataclass_json import plain

Collective = Literal["all_reduce", "broadcast", "all_gather", "reduce_scatter", "send_recv", "barrier"]


@plain
@dataclass(frozen=True, slots=True)
class MeasureCollective:
    """Call a collective again and again, after a barrier each time.

    count: elements of the whole: of the array that is reduced or sent, of all that all_gather collects, of all that
    reduce_scatter shares out; the world size divides it for those two. in_place: all_reduce_in_place, on an array from
    empty(), which holds zeros while the clock runs. One iteration is `calls` calls in a row.

    Yields begin and end: float64 (iterations,), seconds of time.monotonic(); wrong: elements that are not exactly what
    they should be, before and after the clock ran (once if it does not run, with iterations=0); cpu: seconds of processor
    time over all iterations; queued: seconds that this thread waited for a core meanwhile, or None; counts: what
    Facets.counts says of one call, or None.
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

    synced=False: backward in no_sync(), the same work without communication. options: (name, value) pairs for make_replica;
    operations of equal options share a replica until there are others; all other operations have none. named: instead of the
    Job's model, which says what inputs and outputs are, one of Adapter.named_models.

    Yields begin, backward_end and end: float64 (iterations,), seconds of time.monotonic(); cpu and queued as above, over
    all steps; peak: KiB of resident memory at most, since the process began; counts: what Facets.counts says of all
    steps together, or None; timeline: (name, begin, end) of the last step, if ReplicaMethod.TIMELINE.
    """

    kind: ClassVar[str] = "measure_steps"
    samples: tuple[tuple[int, ...], ...]
    synced: bool = True
    warmups: int = 3
    iterations: int = 10
    options: tuple[tuple[str, float | str], ...] = ()
    named: str | None = None
