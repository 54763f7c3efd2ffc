"""Windows of more micro-batches, and more steps, than a byte can count.

The gradient of such a window is exactly that many times the first one's, and each step moves the parameters like the first.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import replicas as causes
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.hypotheses.arrays import Evidence
from ddpcheck.hypotheses.replicas.special_runs import lost_micro_batches, lost_steps, own_steps
from ddpcheck.job import Backward, Job, Operation, Rounds, Step, ZeroGrad
from ddpcheck.models.spec import Linear, ModelSpec
from ddpcheck.trace import Trace

from ..drawing import for_each
from ..explicit_examples import fitting
from ..strategies import GRADIENTS, PARAMETERS, shards, training_job

if TYPE_CHECKING:
    from ddpcheck.session import Session

COUNT = 258
DEEP_COUNT = 65_600
"""More steps than 16 bits can count."""


@law(
    "accumulation",
    needs.replica,
    needs.replica.no_sync,
    needs.replica.reduction_dtype("model"),
    needs.ranks(2, most=2),
)
def check_accumulation_over_258_micro_batches_is_exact(session: Session) -> None:
    """After a window of 258 micro-batches on one batch, the gradient is exactly 258 times that of one micro-batch."""
    for_each(session, fitting(session, [long_window(session.world_size)]), _so_many_times_the_first)


@law("trajectories", needs.replica, needs.replica.optimizers("sgd"), needs.ranks(2, most=2))
def check_258_steps_move_parameters_alike(session: Session) -> None:
    """Each of 258 equal SGD steps on a linear loss moves every parameter by the same amount, so the total is 258 times the
    first. The deep profile takes 65,600 steps.
    """
    for count in (COUNT, DEEP_COUNT) if session.deep else (COUNT,):
        for_each(session, fitting(session, [many_steps(session.world_size, count)]), partial(_moved_by_so_many, count))


def many_steps(world_size: int, count: int = COUNT) -> Job:
    """One step, then the others; with the linear loss and one layer, the gradient is the same in all."""
    samples = shards([1] * world_size)
    step = (ZeroGrad(), Backward(samples), Step())
    rest = step * (count - 1) if count == COUNT else (Rounds(step, count - 1, 1),)
    operations: list[Operation] = [*PARAMETERS, *step, *PARAMETERS, *rest, *PARAMETERS]
    return training_job(world_size, ModelSpec((Linear("fc1", 2, 3),), loss="linear", dtype="float64"), operations)


def _moved_by_so_many(count: int, job: Job, trace: Trace) -> None:
    assertions.completed(trace)
    (_, starts), (_, ones), (_, ends) = trace.all_values("observe")
    for rank, (start, one, end) in enumerate(zip(starts, ones, ends, strict=True)):
        for name, before in start["parameters"].items():
            move = np.asarray(one["parameters"][name] - before)
            expected = np.asarray(before + move * count)
            own = own_steps(expected, [each["parameters"][name] for each in ends], rank)
            known = (*own, *lost_steps(before, move, count, max(0, count - COUNT)))
            assertions.same_array(
                end["parameters"][name],
                expected,
                f"parameter {name}, after {count:,} equal steps:",
                rank,
                Evidence(
                    alternatives=known, otherwise=causes.STEPS_LOST(there="Not all", count=count), precision=False
                ),
            )


def long_window(world_size: int) -> Job:
    """A backward, then a window of COUNT of them; with the linear loss all values are integers."""
    samples = shards([1] * world_size)
    operations: list[Operation] = [ZeroGrad(), Backward(samples), *GRADIENTS, ZeroGrad()]
    operations += [*[Backward(samples, sync=False)] * (COUNT - 1), Backward(samples), *GRADIENTS]
    return training_job(world_size, ModelSpec((Linear("fc1", 2, 3),), loss="linear", dtype="float64"), operations)


def _so_many_times_the_first(job: Job, trace: Trace) -> None:
    """A judge; other checks judge the first backward."""
    assertions.completed(trace)
    (_, ones), (_, windows) = trace.all_values("observe")
    for rank, (one, window) in enumerate(zip(ones, windows, strict=True)):
        for name, gradient in one["gradients"].items():
            if gradient is None:
                continue
            what = f"gradient of {name}, of a window of {COUNT} micro-batches that are one batch:"
            once = np.asarray(gradient)
            known = tuple(lost_micro_batches(once, COUNT))
            assertions.same_array(
                window["gradients"][name],
                once * COUNT,
                what,
                rank,
                Evidence(alternatives=known, otherwise=causes.MICRO_BATCHES_LOST(there="Not all", count=COUNT)),
            )
