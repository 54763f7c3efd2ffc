"""Ranks with different numbers of batches train together inside join()."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ddpcheck.causes.cause import Given
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.replicas import OF_JOINED_PARAMETERS
from ddpcheck.hypotheses.replicas.joining import AfterJoin
from ddpcheck.hypotheses.replicas.special_runs import join_stopped_by_buffers
from ddpcheck.job import Backward, DataSpec, Job, Join, Operation, OptimizerSpec, Step, ZeroGrad
from ddpcheck.models.spec import Linear, ModelSpec, Scale, mlp
from ddpcheck.trace import Trace
from ddpcheck.verdict import Finding

from ..drawing import all_or_every_second, for_each
from ..explicit_examples import fitting
from ..judges import with_causes
from ..strategies import PARAMETERS, shards
from .comparison import as_one_process

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law(
    "trajectories",
    needs.replica,
    needs.replica.join,
    needs.replica.uneven_batches("equal_weight"),
    needs.replica.optimizers("sgd"),
)
def check_join_handles_ranks_out_of_batches(session: Session) -> None:
    """Inside join(), ranks train together until the last rank has used its last batch.

    Ranks without batches count as zero, and the divisor is the promised one. Models may have buffers, which may be broadcast
    before each forward. Afterwards all ranks have equal parameters, train on together, and may join again.
    """
    world = session.world_size
    numbers = [[3] + [1] * (world - 1), [1 + rank for rank in range(world)], [2] * (world - 1) + [0], [2] * world]
    constant = ModelSpec((Linear("fc1", 3, 2),), loss="linear")  # its gradients do not depend on its parameters
    jobs = [
        joining(counts, model)
        for counts in numbers
        if max(counts)
        for model in (constant, mlp((3, 4, 2), activation="tanh"))
    ]
    buffered = ModelSpec((Linear("fc1", 3, 2), Scale("scale", 2, buffer=True)), loss="linear")
    # rank 0 has the most batches, or the fewest
    jobs += [joining(counts, buffered) for counts in (numbers[0], numbers[0][::-1])]
    jobs += [_with_momentum(counts) for counts in numbers[:2]]
    judge = with_causes(as_one_process(session.capabilities), partial(_explain, session.capabilities))
    for_each(session, all_or_every_second(session, fitting(session, jobs)), judge)


def _with_momentum(counts: list[int]) -> Job:
    """A single join(), after which the optimizer may hold any state."""
    job = joining(counts, ModelSpec((Linear("fc1", 3, 2),), loss="linear"))
    return replace(job, operations=job.operations[:2], optimizer=replace(job.optimizer, momentum=0.9))


def joining(counts: list[int], model: ModelSpec) -> Job:
    """Rank r has counts[r] batches of two samples; then all ranks take one more step, and join once more with the counts
    reversed.
    """
    world_size, total = len(counts), sum(counts)
    pairs = iter([(2 * number, 2 * number + 1) for number in range(total)])
    batches = tuple(tuple(next(pairs) for _ in range(count)) for count in counts)
    operations: list[Operation] = [Join(batches), *PARAMETERS]
    operations += [ZeroGrad(), Backward(shards([1] * world_size)), Step(), *PARAMETERS]
    operations += [Join(batches[::-1]), *PARAMETERS]
    data = DataSpec(max(2 * total, world_size), "real", 1)
    return Job(world_size, tuple(operations), model, OptimizerSpec(lr=0.05), data, 0)


def _explain(promised: Capabilities, job: Job, trace: Trace, _: Finding) -> Given:
    if not trace.completed:
        return join_stopped_by_buffers(job)
    return first_cause(OF_JOINED_PARAMETERS, AfterJoin(job, trace, promised))
