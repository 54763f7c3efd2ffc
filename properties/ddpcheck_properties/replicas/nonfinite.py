"""Gradients with NaN and infinities, which show that training diverges."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck import assertions
from ddpcheck.causes import replicas as causes
from ddpcheck.checks import law
from ddpcheck.contract import Capabilities, ReplicaMethod, needs
from ddpcheck.hypotheses.choose_causes import first_cause
from ddpcheck.hypotheses.ordered_hypotheses.replicas import OF_NONFINITE_GRADIENT
from ddpcheck.job import Backward, DataSpec, Job, Operation, ZeroGrad
from ddpcheck.models.spec import Linear, ModelSpec, Scale, mlp
from ddpcheck.trace import Trace
from ddpcheck.verdict import Diagnosis, Finding

from ..drawing import for_each
from ..explicit_examples import fitting
from ..judges import Judge
from ..strategies import GRADIENTS, shards, training_job
from .comparison import as_one_process, when
from .skipped_steps import poisoned

if TYPE_CHECKING:
    from ddpcheck.session import Session


@law("gradients", needs.replica, needs.replica.no_sync)
def check_nonfinite_gradients_reach_every_rank(session: Session) -> None:
    """If any rank's local gradient is NaN or infinite, the synchronised gradient is non-finite on every rank; all other
    elements are finite. Raising an error instead is allowed.
    """
    world, promised = session.world_size, session.capabilities
    chains = ((Linear("fc1", 5, 4),), (Scale("scale", 7), Linear("fc1", 7, 2)))
    jobs = [
        diverging(world, ModelSpec(layers, loss="linear", dtype=dtype))
        for layers in chains
        for dtype in sorted(promised.replica.replica_dtypes)
    ]
    for_each(session, fitting(session, jobs), _nonfinite_on_every_rank)


def diverging(world_size: int, model: ModelSpec) -> Job:
    """The same batch inside no_sync, for every rank's own gradients, and synchronised."""
    batch = shards([1] * world_size)
    operations: list[Operation] = [ZeroGrad(), Backward(batch, sync=False), *GRADIENTS]
    operations += [ZeroGrad(), Backward(batch), *GRADIENTS]
    job = training_job(world_size, model, operations)
    assert job.data is not None
    return replace(job, data=DataSpec(job.data.samples, "nonfinite", job.data.seed), model=model)


@law("gradients", needs.replica)
def check_zero_grad_clears_nan_gradients(session: Session) -> None:
    """After zero_grad() or zero_gradients(), an earlier NaN does not affect the next backward's gradients, whether
    synchronised or inside no_sync. Raising an error at the NaN instead is allowed.
    """
    world, promised = session.world_size, session.capabilities
    forms = (False, True) if promised.has(ReplicaMethod.ZEROES_GRADIENTS) else (False,)
    for_each(
        session,
        fitting(session, [_cleared(world, promised, zeros) for zeros in forms]),
        _finite_after_zero_grad(promised),
    )


def _cleared(world_size: int, promised: Capabilities, to_zeros: bool) -> Job:
    """A backward with NaN, cleared before a finite one; then the same inside no_sync, if promised."""
    good, bad = shards([2] * world_size), shards([2] * world_size, 2 * world_size)
    operations: list[Operation] = [ZeroGrad()]
    for sync in (True, False)[: 1 + promised.has(ReplicaMethod.NO_SYNC)]:
        operations += [Backward(bad, sync=sync), ZeroGrad(to_zeros), Backward(good), *GRADIENTS, ZeroGrad(to_zeros)]
    dtype = min(promised.replica.replica_dtypes, key=lambda name: (name != "float64", name))
    job = training_job(world_size, replace(mlp((2, 3, 2), loss="linear"), dtype=dtype), operations, exact=False)
    return poisoned(job, 2 * world_size, "nan")


def _finite_after_zero_grad(promised: Capabilities) -> Judge:
    like_one_process = as_one_process(promised)

    def judge(job: Job, trace: Trace) -> None:
        if trace.raised:
            return
        try:
            like_one_process(job, trace)
        except Finding as finding:
            for position, ranks in trace.all_values("observe"):
                for rank, seen in enumerate(ranks):
                    for name, got in seen["gradients"].items():
                        assertions.that(
                            got is None or bool(np.isfinite(got).all()),
                            f"gradient of {name} ({when(job, position)}) on rank {rank}: NaN, but should be finite, as this "
                            "batch is",
                            causes.NAN_KEPT_AFTER_ZERO_GRAD(),
                        )
            raise finding from None

    return judge


def _nonfinite_on_every_rank(job: Job, trace: Trace) -> None:
    if trace.raised:
        return
    assertions.completed(trace)
    (_, local), (position, synchronised) = trace.all_values("observe")
    for name in local[0]["gradients"]:
        for rank, seen in enumerate((*local, *synchronised)):
            text = f"gradient of {name} on rank {rank % job.world_size}: got none, but should be an array"
            assertions.that(seen["gradients"][name] is not None, text, causes.GRADIENT_GATHERED_ELSEWHERE())
        finite = np.logical_and.reduce([np.isfinite(seen["gradients"][name]) for seen in local])
        for rank, seen in enumerate(synchronised):
            got = seen["gradients"][name]
            wrong = np.isfinite(got) != finite
            if not wrong.any():
                continue
            index = tuple(int(i) for i in np.argwhere(wrong)[0])
            lost = bool(np.isfinite(got[index]))
            cause = first_cause(OF_NONFINITE_GRADIENT, got[index])
            own = ", ".join(f"{float(other['gradients'][name][index])!r}" for other in local)
            what = f"gradient of {name} ({when(job, position)}){list(index) if index else ''} on rank {rank}"
            should = f"{'not ' * lost}be finite: the ranks' own are {own}"
            raise Finding(Diagnosis(f"{what}: got {float(got[index])!r}, but should {should}", cause))
