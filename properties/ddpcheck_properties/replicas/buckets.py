"""Checks for any packing of gradients into buckets, and any order of arrival."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ddpcheck import assertions
from ddpcheck.check_levels import Level
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, ReplicaMethod, needs
from ddpcheck.hypotheses.replicas.special_runs import right_the_first_time
from ddpcheck.job import Backward, Clip, Job, Observe, Operation, OptimizerSpec, Resume, Save, Step, ZeroGrad
from ddpcheck.models.spec import Activation, Layer, Linear, ModelSpec, Scale
from ddpcheck.oracle import Oracle
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from .. import explicit_examples
from ..drawing import for_each, has_time_for_long_jobs
from ..explicit_examples import fitting, one_backward
from ..judges import Judge
from ..strategies import GRADIENTS, PARAMETERS, shards, training_job
from .comparison import as_one_process, compare_arrays, when
from .shown_values import by_shown_values
from .unused_parameters import SYNCHRONISED

if TYPE_CHECKING:
    from ddpcheck.session import Session

LADDER = (64, 128, 1024, 2048, 8192, 32768)
"""Elements of tensors, float32 and float64 in turn while float32 is exact: two or four tensors make exactly 2^9, 2^10,
2^11 ... 2^20 bytes.
"""

ROUND = (*(1 << power for power in range(8, 17)), *(10**power for power in range(3, 6)))
LARGE_AND_ROUND = (*(1 << power for power in range(17, 21)), 10**6)
"""Elements of usual bucket sizes: one tensor may fill a bucket exactly."""

LONG = "a_layer_" * 9
"""Names of 72 letters, because some implementations truncate names."""


@law("buckets", needs.replica, needs.replica.model_features("scale"), level=Level.BASIC)
def check_full_and_overflowing_buckets_are_exact(session: Session) -> None:
    """Gradients are exact for equally sized tensors that together fill a bucket of any size exactly, or overflow it."""
    world, promised = session.world_size, session.capabilities
    dtypes = sorted(promised.replica.replica_dtypes)
    jobs = [filled(world, size, dtypes[number % len(dtypes)]) for number, size in enumerate(LADDER)]
    for_each(session, fitting(session, jobs), as_one_process(promised))


@law("buckets", needs.replica, level=Level.BASIC)
def check_gradients_of_every_tensor_size_are_exact(session: Session) -> None:
    """Gradients are exact for tensors of every size up to 66 elements, of odd sizes in every octave beyond, and as large as
    a bucket of any usual size.
    """
    world, promised = session.world_size, session.capabilities
    dtypes = sorted(promised.replica.replica_dtypes)
    jobs = [one_size_after_another(world, range(first, 67, 11)) for first in range(1, 12)]
    between = "scale" in promised.replica.model_features
    octaves = [(3 << octave | 1, dtypes[octave % len(dtypes)]) for octave in range(7, 16)]
    jobs += [one_size(world, size, dtype, between=between) for size, dtype in octaves]
    alone = ROUND + LARGE_AND_ROUND if has_time_for_long_jobs(session) else ROUND
    jobs += [one_backward(world, Linear("fc1", size, 1)) for size in alone]
    for_each(session, fitting(session, jobs), as_one_process(promised))


@law("buckets", needs.replica, needs.replica.model_features("scale"), level=Level.BASIC)
def check_many_small_tensors_are_trained_exactly(session: Session) -> None:
    """Gradients are exact at every step for a model of three hundred small tensors, also if their names differ only in the
    last letters. Steps, accumulation, clipping and checkpoints neither omit nor mix up any of 120 tensors.
    """
    world, promised = session.world_size, session.capabilities
    jobs = [
        one_backward(world, Linear("fc1", 1, 3), *(Scale(f"{name}{number}", 3) for number in range(count)), rounds=2)
        for count, name in ((298, "scale"), (12, LONG))
    ]
    if world == 2 and "sgd" in promised.replica.optimizers:
        jobs.append(many_trained(world, promised))
    for_each(session, fitting(session, jobs), as_one_process(promised), further=by_shown_values(session))


@law("buckets", needs.replica, level=Level.BASIC)
def check_gradients_stay_exact_after_many_backwards(session: Session) -> None:
    """Gradients of the 40th backward and the 40th step are as exact as the first: no counter overflows, no period repeats,
    no state remains.

    With two ranks, so are the 256th backward (where a byte wraps), the 130th Adam step, and one step after it on a new
    replica.
    """
    world, promised = session.world_size, session.capabilities
    jobs = [
        forty_times(world, stepping=stepping, local=promised.has(ReplicaMethod.NO_SYNC)) for stepping in (False, True)
    ]
    for_each(session, fitting(session, jobs), as_one_process(promised))
    if world == 2:
        for_each(session, fitting(session, [the_same_again(world)]), _like_the_first(promised))
        for_each(
            session,
            fitting(session, [many_steps(world, resumed=promised.has(ReplicaMethod.CHECKPOINT))]),
            as_one_process(promised),
        )


@law("buckets", needs.replica, needs.replica.model_features("branch"), SYNCHRONISED, needs.ranks(2))
def check_unused_parameters_may_differ_by_rank_and_step(session: Session) -> None:
    """Every gradient is the exact mean even if ranks use different parameters in every step, so that gradients arrive in any
    order. A parameter counts as zero on a rank that does not use it.
    """
    world, promised = session.world_size, session.capabilities
    jobs = [changing(world, 0, 2), *(changing(world, start) for start in range(3))]
    jobs.append(explicit_examples.branches(world, "ab", ("a", "ab"), *[("b", "b")] * 9, ("ab", "a")))
    if "sgd" in promised.replica.optimizers:
        jobs.append(_stepping(jobs[1]))
    for_each(session, fitting(session, jobs), as_one_process(promised))


def many_trained(world_size: int, promised: Capabilities) -> Job:
    """Three steps of a model of 120 tensors, with all promised features: a micro-batch inside no_sync in two steps, zero
    gradients and clipping in the second, a new replica in the third.
    """
    operations: list[Operation] = []
    for number in range(3):
        operations += [Save(), Resume()] * (promised.has(ReplicaMethod.CHECKPOINT) and number == 2)
        first, second = (shards([2] * world_size, (4 * number + half) * world_size) for half in (0, 2))
        operations.append(ZeroGrad(to_zeros=promised.has(ReplicaMethod.ZEROES_GRADIENTS) and number == 1))
        operations += [Backward(first, sync=False)] * (promised.has(ReplicaMethod.NO_SYNC) and number < 2)
        operations += [Backward(second), *GRADIENTS * (number == 1)]
        operations += [*[Clip(0.5)] * (promised.has(ReplicaMethod.CLIPPING) and number == 1), Step(), *PARAMETERS]
    layers: list[Layer] = [Linear("fc1", 2, 3), *(Scale(f"scale{number}", 3) for number in range(116))]
    model = ModelSpec((*layers, Linear("wide", 3, 500)), loss="linear", dtype=max(promised.replica.replica_dtypes))
    optimizer = OptimizerSpec(lr=1e-4, momentum=0.9, weight_decay=0.1)
    job = training_job(world_size, model, operations, optimizer, exact=False)
    assert job.data is not None
    # scales of 1 and -1, whose product stays bounded
    return replace(job, data=replace(job.data, values="lattice"))


def filled(world_size: int, size: int, dtype: str) -> Job:
    """Five tensors of `size` elements and nothing else, backward twice."""
    layers = Linear("fc1", 1, size), Scale("scale1", size), Scale("scale2", size), Linear("fc2", size, 1, bias=False)
    return one_backward(world_size, *layers, rounds=2, dtype=dtype)


def one_size_after_another(world_size: int, sizes: Iterable[int]) -> Job:
    """A chain of layers of these widths: the biases have these sizes, and the weights have products of neighbouring sizes."""
    widths = [1, *sizes]
    return one_backward(world_size, *(Linear(f"fc{number}", *pair) for number, pair in enumerate(pairwise(widths))))


def one_size(world_size: int, size: int, dtype: str, *, between: bool = True) -> Job:
    """The first and the last tensor have `size` elements; `between` them is a scalar."""
    first, last = Linear("fc1", 1, size, bias=False), Linear("fc2", size, 1, bias=False)
    return one_backward(world_size, first, *[Scale("scalar", 0)] * between, last, dtype=dtype)


def forty_times(world_size: int, *, stepping: bool, local: bool) -> Job:
    """Forty backwards, or forty steps with one backward each and, if `local`, one inside no_sync before it.

    With the linear loss and one layer, gradients do not depend on the parameters, so they stay exact.
    """
    operations: list[Operation] = []
    for number in range(40):
        first, second = (shards([1] * world_size, (2 * number + half) * world_size) for half in (0, 1))
        operations.append(ZeroGrad())
        operations += [Backward(first, sync=False)] if stepping and local else []
        operations += [Backward(second), *((Step(), *PARAMETERS) if stepping else GRADIENTS)]
    layers: tuple[Layer, ...] = (Linear("fc1", 2, 3), Activation("relu"), Linear("fc2", 3, 2))
    optimizer = OptimizerSpec(lr=1.0, momentum=1.0) if stepping else None
    return training_job(world_size, ModelSpec(layers[: 1 if stepping else 3], loss="linear"), operations, optimizer)


def the_same_again(world_size: int) -> Job:
    """258 backwards on one batch of real values, with an observation after the first and the last four."""
    once: list[Operation] = [ZeroGrad(), Backward(shards([2] * world_size))]
    operations = [*once, *GRADIENTS, *once * 253, *[*once, *GRADIENTS] * 4]
    layers = Linear("fc1", 2, 6), Activation("tanh"), Linear("fc2", 6, 6)
    return training_job(world_size, ModelSpec(layers), operations, exact=False)


def many_steps(world_size: int, *, resumed: bool) -> Job:
    """130 steps of Adam on constant gradients, and one more, on a new replica if that is promised."""
    operations: list[Operation] = []
    for number in range(131):
        operations += [Save(), Resume()] * (resumed and number == 130)
        operations += [ZeroGrad(), Backward(shards([1] * world_size, number * world_size)), Step(), *PARAMETERS]
    optimizer = OptimizerSpec("adam", lr=0.02, betas=(0.875, 0.984375), eps=0.1)
    model = ModelSpec((Linear("fc1", 2, 3),), loss="linear", dtype="float64")
    return training_job(world_size, model, operations, optimizer, exact=False)


def _like_the_first(promised: Capabilities) -> Judge:
    """A judge: every observation equals the first one of the same batch, which an oracle checks."""

    def judge(job: Job, trace: Trace) -> None:
        assertions.completed(trace)
        *_, first = Oracle(replace(job, operations=job.operations[:3]), promised, bounds=True).walk()
        for position, ranks in trace.all_values("observe"):
            shown = [rank["gradients"] for rank in ranks]
            try:
                compare_arrays(shown, first.arrays["gradients"], "gradients", when(job, position))
            except Finding as finding:
                raise finding.blaming(finding.diagnosis.causes, right_the_first_time(position)) from None

    return judge


PATTERNS = (("ad", "bd"), ("abcde", "abcde"), ("b", "a"), ("e", "ac"), ("", "abcde"), ("cd", "dc"), ("ace", ""))
"""Branches that even and odd ranks take in one step: orders of arrival differ by rank and by step."""


def changing(world_size: int, start: int, count: int = len(PATTERNS)) -> Job:
    """Three branches of one shape, then two of another, taken in turn as PATTERNS say from `start` on."""
    operations: list[Operation] = []
    for number in range(count):
        pattern = PATTERNS[(start + number) % len(PATTERNS)]
        active = tuple(tuple(pattern[rank % 2]) for rank in range(world_size))
        samples = shards([1] * world_size, number * world_size)
        operations += [ZeroGrad(), Backward(samples, branches=active), *GRADIENTS]
    first = [Linear(f"branch_{name}", 2, 2, branch=name) for name in "abc"]
    second = [Linear(f"branch_{name}", 3, 3, branch=name) for name in "de"]
    layers = (*first, Linear("fc1", 2, 3), *second, Linear("fc2", 3, 1))
    return training_job(world_size, ModelSpec(layers, loss="linear"), operations)


def _stepping(job: Job) -> Job:
    """The Job with a step after each backward, of real values."""
    operations: list[Operation] = []
    for operation in job.operations:
        operations += [operation, Step(), *PARAMETERS] if isinstance(operation, Observe) else [operation]
    assert job.model is not None
    return training_job(
        job.world_size, replace(job.model, loss_scale=1.0), operations, OptimizerSpec(lr=0.05), exact=False
    )
