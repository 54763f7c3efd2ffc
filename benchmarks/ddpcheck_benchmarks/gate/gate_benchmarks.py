"""The gate's benchmarks, by name: `step`, `barrier`, `all_reduce:1MiB`, `all_reduce:64KiB:in_place` ..."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from ddpcheck.contract import CallForm, Capabilities
from ddpcheck.job import DataSpec, Job, OptimizerSpec
from ddpcheck.models.spec import ModelSpec, mlp
from ddpcheck.operations.timing import Collective, MeasureCollective, MeasureSteps
from ddpcheck.running.unknown_names import require_known
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Trace

from ..sizes import size as size_of
from ..step_cases import RATE

BATCH = 32
_MODEL = mlp((64, 256, 256, 10))
TCP_BYTES = "TCP bytes"
"""The name of what the kernel counts."""
_KINDS = ("step", *get_args(Collective))
_ITEM = 4  # float32
_SECONDS = 2e-3
"""The shortest timed iteration: ranks leave the barrier before it at slightly different times."""
_SECONDS_OF_STEPS = 1e-3
"""The shortest timed iteration of steps, which follow one another without a barrier."""
_MOST_CALLS = 500


@dataclass(frozen=True)
class Benchmark:
    """One benchmark. size: bytes of the whole array (MeasureCollective.count). calls: in one timed iteration.

    iterations: timed ones in a burst; 0 until a trial has shown how many are needed.
    """

    name: str
    kind: str
    size: int = 0
    in_place: bool = False
    calls: int = 1
    iterations: int = 0

    @property
    def unit(self) -> str:
        return "step" if self.kind == "step" else "call"

    def job(self, world_size: int, iterations: int, promised: Capabilities) -> Job:
        """One burst: warm-up iterations, then `iterations` timed ones."""
        if self.kind == "step":
            samples = tuple(tuple(range(BATCH * rank, BATCH * (rank + 1))) for rank in range(world_size))
            # two warm-up iterations: torch's DDP rebuilds its buckets after the first
            steps = MeasureSteps(samples, warmups=2, iterations=iterations * self.calls)
            data = DataSpec(BATCH * world_size, "real")
            return Job(world_size, (steps,), model_for(promised), _optimizer(promised), data)
        count = -(-self.size // _ITEM // world_size) * world_size
        return Job(world_size, (self._collective(count, iterations),))

    def _collective(self, count: int, iterations: int) -> MeasureCollective:
        kind: Any = self.kind
        return MeasureCollective(
            kind, count, in_place=self.in_place, warmups=1, iterations=iterations, calls=self.calls
        )

    def durations(self, trace: Trace) -> Array:
        """Seconds of each timed iteration on each rank: float64 (iterations, ranks)."""
        begin = np.stack(trace.values(0, "begin"), axis=-1)
        end = np.stack(trace.values(0, "end"), axis=-1)
        if self.kind == "step":
            begin, end = begin[:: self.calls], end[self.calls - 1 :: self.calls]
        made: Array = end - begin
        return made

    def wrong(self, trace: Trace) -> int:
        """The number of wrong elements over all ranks; a step has none."""
        return 0 if self.kind == "step" else sum(trace.values(0, "wrong"))

    def counts(self, trace: Trace) -> tuple[Mapping[str, float], ...] | None:
        """The traffic that each rank counted for one call or step: the implementation, or the kernel on TCP connections.

        None if neither counts it, as in shared memory.
        """
        over = len(trace.values(0, "begin")[0]) if self.kind == "step" else 1
        told = trace.values(0, "counts")
        if None not in told:
            return tuple({name: _whole(count / over) for name, count in sorted(rank.items())} for rank in told)
        sent = trace.values(0, "sent")
        return tuple({TCP_BYTES: _whole(count / over)} for count in sent) if any(sent) else None

    def calibrated(self, seconds: float) -> Benchmark:
        """The benchmark with enough calls per iteration to hide the clock and the harness; `seconds` is the time of one
        call.
        """
        shortest = _SECONDS_OF_STEPS if self.kind == "step" else _SECONDS
        return replace(self, calls=min(_MOST_CALLS, max(1, math.ceil(shortest / max(seconds, 1e-9)))))

    def least_bytes(self, world_size: int, promised: Capabilities) -> float | None:
        """Bytes that the best algorithm for large arrays sends from each rank for one call or step; None if unknown."""
        moved = {"all_reduce": 2, "step": 2, "all_gather": 1, "reduce_scatter": 1}.get(self.kind)
        if moved is None or world_size < 2:
            return None
        size = self.size
        if self.kind == "step":
            model = model_for(promised)
            size = sum(math.prod(t.shape) * np.dtype(t.dtype).itemsize for t in model.tensors() if t.role == "learned")
        return moved * (world_size - 1) / world_size * size


def model_for(promised: Capabilities) -> ModelSpec:
    """The model of a step: 85,000 parameters, in a promised dtype."""
    dtypes = promised.replica.replica_dtypes
    return _MODEL if _MODEL.dtype in dtypes or not dtypes else replace(_MODEL, dtype=min(dtypes))


def _optimizer(promised: Capabilities) -> OptimizerSpec:
    name: Any = (
        "sgd"
        if "sgd" in promised.replica.optimizers or not promised.replica.optimizers
        else min(promised.replica.optimizers)
    )
    return OptimizerSpec(name, RATE)


def _whole(number: float) -> float:
    return int(number) if float(number).is_integer() else number


def benchmark_named(text: str) -> Benchmark:
    """The benchmark of this name. ValueError, with the right form, if there is none."""
    kind, *more = text.strip().split(":")
    require_known(kind, _KINDS, "benchmark")
    in_place = more[-1:] == ["in_place"]
    sizes = more[:-1] if in_place else more
    if in_place and kind != "all_reduce":
        raise ValueError(f"{text!r}: only all_reduce has a form in place")
    if kind in ("step", "barrier"):
        if sizes:
            raise ValueError(f"{text!r}: a {kind} has no size; write {kind}")
        return Benchmark(kind, kind)
    if len(sizes) != 1:
        raise ValueError(f"{text!r} should have a size, such as {kind}:1MiB")
    size = size_of(sizes[0])
    if size % _ITEM:
        raise ValueError(f"{text!r} is {size} bytes: write a size that {_ITEM} divides")
    return Benchmark(text.strip(), kind, size, in_place)


def offered_by(promised: Capabilities, benchmark: Benchmark) -> str | None:
    """The reason why an implementation cannot run this benchmark; None if it can."""
    if benchmark.kind == "step":
        return None if "replica" in promised.facets else "it offers no replica"
    if "collectives" not in promised.facets or benchmark.kind not in promised.collectives.operations:
        return f"it offers no {benchmark.kind}"
    return "it offers no all_reduce in place" if benchmark.in_place and not promised.has(CallForm.IN_PLACE) else None


def usual(promised: Capabilities) -> tuple[Benchmark, ...]:
    """The default benchmarks: a training step and a large all-reduce, if offered."""
    wanted = [benchmark_named(name) for name in ("step", "all_reduce:1MiB")]
    return tuple(benchmark for benchmark in wanted if offered_by(promised, benchmark) is None)
